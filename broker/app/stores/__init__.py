"""Stores outside of the data folder: opened from the settings, and tied to the folder."""
