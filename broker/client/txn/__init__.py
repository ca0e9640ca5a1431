"""Transactions on one vchannel, and staged batches across many."""
