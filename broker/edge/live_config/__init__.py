"""The services of the configuration: that of the cluster, and that of a node."""
