"""The configuration of the cluster: its records, and the actor that changes them."""
