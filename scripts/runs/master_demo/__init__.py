"""The parts of the demonstration of the master."""
