"""The profiles that come with the package: published measurements, one compressed file per system."""
