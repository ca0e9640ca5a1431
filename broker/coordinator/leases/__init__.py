"""The leases of nodes, and the leadership of the coordinator."""
