"""The `tidemark` command.

Nothing here decides anything about a log: each command asks a server, or starts one, and says what
came of it. Exit codes: 0 done, 1 refused or failed (one sentence on stderr), 2 wrong usage,
3 a coordinator that a newer one has replaced, 130 interrupted. Modules are imported when a command
runs, so that the command starts fast.
"""
