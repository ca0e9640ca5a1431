"""Rules of time: hybrid ticks, barriers, named cursors, the choice of a cut."""
