"""Rules of the master, without I/O."""
