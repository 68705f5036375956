"""Predictions held against measurements: rows of published runs in, an accuracy report out."""
