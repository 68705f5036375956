"""The resources served over HTTP, one module for each."""
