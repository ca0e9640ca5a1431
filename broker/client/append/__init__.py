"""Appending: from the program to one pchannel, and the acknowledgement back."""
