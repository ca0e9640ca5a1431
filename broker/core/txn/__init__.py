"""Rules of transactions: states, leases, limits, and the two-phase commit of a batch."""
