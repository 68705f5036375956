"""The version of the product that answers."""

from importlib.metadata import version

DISTRIBUTION = "meshplan"
VERSION = version(DISTRIBUTION)
