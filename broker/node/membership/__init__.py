"""How a process becomes, stays and stops being a node of the cluster."""
