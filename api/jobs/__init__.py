"""Work on requests: what an answer is made of, and where it runs."""
