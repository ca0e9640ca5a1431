"""Messages of streams: their classes, packs, positions, and how bytes become messages."""
