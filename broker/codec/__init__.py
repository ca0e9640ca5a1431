"""Ports of node and coordinator, implemented with Milvus's wire formats."""
