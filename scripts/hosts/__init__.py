"""Hosts as network namespaces, the faults between them, and what runs on them."""
