"""The master of the cluster, as a program sees it: `log.master`, and `log.config`."""
