"""Commands that run a process, and that prepare one."""
