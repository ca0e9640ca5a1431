"""The rules of the cluster's configuration: keys, order of answers, changes."""
