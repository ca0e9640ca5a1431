"""Tenants and proxies in the meta table."""
