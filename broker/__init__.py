"""Tidemark: a write-ahead-log broker made of actors.

This package owns everything but the actor runtime (`actors`) and the wire formats (`schemas`).
"""
