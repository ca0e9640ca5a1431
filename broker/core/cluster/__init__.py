"""Rules of the cluster: assignment, balance, leases, locks, broadcasts."""
