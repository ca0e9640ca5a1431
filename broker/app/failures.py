"""What keeps a process from starting. Owns the one error that a person is shown."""


class CannotStart(Exception):
    """The broker did not start; the message is one sentence for the person who started it."""
