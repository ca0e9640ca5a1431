"""Prometheus metrics: one table of metrics, and the port that serves them.

Everything is counted elsewhere, and read here at each scrape.
"""
