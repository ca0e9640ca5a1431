"""Stored forms of records: what they have in common, and what stands in the place of some."""
