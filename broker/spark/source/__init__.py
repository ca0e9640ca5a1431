"""Spark's source: a micro-batch is what lies between two cuts."""
