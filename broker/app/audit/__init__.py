"""The audit of a process: its file, the thread that writes it, and its place in the process."""
