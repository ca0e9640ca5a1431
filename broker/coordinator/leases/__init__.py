"""Leases of nodes, and the leadership of the coordinator itself."""
