"""Measures the machines to plan for, with torch."""
