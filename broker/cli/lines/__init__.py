"""What `tidemark consume` writes: which messages, in which form, and how they reach stdout."""
