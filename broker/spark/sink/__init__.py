"""Spark's sink: tasks stage rows, the driver commits each micro-batch once."""
