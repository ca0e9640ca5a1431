"""What commands print: tables, trees, JSON."""
