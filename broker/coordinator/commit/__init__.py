"""Two-phase commits of staged batches: one task for each commit."""
