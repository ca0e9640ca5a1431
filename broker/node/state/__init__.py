"""What the actors of one node share: messages, limits, open channels, leases."""
