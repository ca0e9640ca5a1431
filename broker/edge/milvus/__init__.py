"""Milvus's streaming services."""
