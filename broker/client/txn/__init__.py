"""Transactions on one vchannel, and staged batches across many vchannels."""

from broker.client.txn.batch_commits import AppCommits, BatchCommits

__all__ = ["AppCommits", "BatchCommits"]
