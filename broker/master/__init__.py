"""The master: the actors that keep the cluster's meta table and give out its ids.

It runs in the coordinator's process, above the coordinator's own actors.
"""
