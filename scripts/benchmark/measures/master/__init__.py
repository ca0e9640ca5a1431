"""What the master answers: look-ups, changes of definitions, timestamps and ids."""
