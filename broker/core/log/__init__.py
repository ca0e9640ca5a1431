"""Rules of one log: admission, ids and ticks, recovery, delivery to readers."""
