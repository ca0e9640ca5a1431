"""What goes over the wire: protobuf sources, generated classes, and hand-written fast paths.

Knows bytes, never brokers: imports nothing of ours. See schemas/README.md.
"""
