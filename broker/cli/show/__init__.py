"""How answers are printed: tables, trees, JSON."""
