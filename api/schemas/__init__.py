"""The documents on the wire: one module for each, with its conversions to and from the domain."""
