"""From rounds to medians, ratios, goals, tables and a picture."""
