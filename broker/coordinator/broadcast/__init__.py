"""Broadcasts: locks on resource keys, and one task for each broadcast."""
