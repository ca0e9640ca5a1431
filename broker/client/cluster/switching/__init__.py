"""Switches of the log, as a program asks for them."""
