"""Gives disk space back that records of dropped collections take."""
