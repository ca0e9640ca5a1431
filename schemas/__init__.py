"""The wire formats: protobuf sources, generated classes, and hand-written code for the hot paths.

Works on bytes and imports nothing else of this repository. See schemas/README.md.
"""
