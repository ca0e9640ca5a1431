"""Collections: their names, ids, vchannels and row schemas."""
