"""The `tidemark` command.

Each command asks a server, or starts one, and prints the result. Exit codes: 0 done, 1 refused or
failed (one sentence on stderr), 2 wrong usage, 3 a coordinator that a newer one has replaced,
130 interrupted. A command imports its modules when it runs, so that it starts fast.
"""
