"""Arrow rows: the columns of a collection, bodies of rows, JSON for readers of messages."""
