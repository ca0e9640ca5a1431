"""Changes of the meta table: planned under their keys, applied once their broadcast arrived."""
