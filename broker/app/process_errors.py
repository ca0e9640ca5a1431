"""What keeps a process from starting, or ends it. Owns the errors that a person is shown."""


class CannotStart(Exception):
    """The broker did not start; the message is one sentence for the person who started it."""


class LeadLost(Exception):
    """A newer coordinator leads the cluster: this one has stopped; the message is a sentence."""
