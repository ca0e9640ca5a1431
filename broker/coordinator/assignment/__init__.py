"""Who owns each pchannel: the assignment table, a reconciler for each pchannel, the balancer."""
