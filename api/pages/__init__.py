"""What the pages show: result documents turned into words, numbers with units, and shapes to draw."""
