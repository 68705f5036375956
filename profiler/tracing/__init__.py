"""Traces a module of the user's own into a chain of layers: nothing is computed, only shapes are followed."""
