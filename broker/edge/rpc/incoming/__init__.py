"""Requests as they come: decoded within limits, and in turns with those of other streams."""
