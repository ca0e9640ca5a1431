"""Rules of a backup: where each log is cut, and from where a restored cluster numbers on."""
