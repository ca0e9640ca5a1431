"""The services of `tidemark.v1`."""
