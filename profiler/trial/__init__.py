"""A plan run for some steps: a plain transformer of its dimensions, random data, torch's own parallelism."""
