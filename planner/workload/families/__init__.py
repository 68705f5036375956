"""Model families by the shape of their config: which key means what, and what its absence means."""
