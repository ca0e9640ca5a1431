"""Who owns each pchannel: the assignment table, the balancer, one Placer a channel."""
