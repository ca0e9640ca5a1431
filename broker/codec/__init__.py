"""Ports of the inside implemented with Milvus's wire formats."""
