"""Offers messages at exact times."""
