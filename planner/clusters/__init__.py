"""Cluster presets: well-known systems, one document each, as node groups of the wire format."""
