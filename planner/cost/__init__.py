"""Predicted time and memory, one module for each cause."""
