"""The write path of one pchannel: the Appender and what it needs."""
