"""Modules to trace, to try the tool on and to start from."""
