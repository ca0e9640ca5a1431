"""Message properties with a meaning: their keys, and the text form of their values."""
