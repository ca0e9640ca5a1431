"""Open transactions of one pchannel: one actor for each."""
