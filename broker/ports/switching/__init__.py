"""Ports for a log that is moved from one driver to another."""
