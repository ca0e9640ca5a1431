"""Who owns each pchannel: the assignment table, the balancer, one ChannelReconciler a channel."""
