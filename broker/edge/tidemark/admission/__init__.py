"""Which appended batches are taken: their names, sizes, properties, rows, and what is packed."""
