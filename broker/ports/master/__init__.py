"""What the master of the cluster needs from the process it runs in."""
