"""Arrow rows: columns of a collection, bodies of rows, and rows as JSON for readers of messages."""
