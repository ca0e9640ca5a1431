"""The parts of the demonstration of consumer groups."""
