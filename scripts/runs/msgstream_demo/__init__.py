"""The programs of the demonstration of message streams."""
