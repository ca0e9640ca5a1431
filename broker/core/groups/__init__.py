"""Rules of consumer groups: what is acknowledged, and who has which messages on lease."""
