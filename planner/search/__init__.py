"""The search for the plan that no other plan beats, and its proof."""
