"""Two-phase commits of staged batches: one CommitTask for each commit in progress."""
