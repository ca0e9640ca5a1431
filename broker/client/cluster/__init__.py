"""What a program asks of the cluster: collections, barriers, cursors, positions, health."""
