"""Broadcasts: the Broadcaster grants resource keys; one BroadcastTask runs each broadcast."""
