"""Errors that end a process with a sentence for the operator."""


class CannotStart(Exception):
    """The process did not start; the message is one sentence for the operator."""


class CannotGoOn(Exception):
    """The process has stopped: it would never serve again. One sentence for the operator."""


class LeadLost(Exception):
    """A newer coordinator leads the cluster, so this one has stopped."""
