"""The vchannels that messages of one log have named, as far as the log was searched.

What is stored after the log was opened is added as it comes. What lies before that is searched from
the beginning, only when somebody asks for a name that is not known yet.
"""

from collections.abc import Iterable

from broker.model.ids import MessageId

NAMES_MAX = 65_536
"""Takes about 10 MB when reached."""


class NamedVChannels:
    """The names of one pchannel, which was opened at `opened_id`."""

    def __init__(self, opened_id: MessageId, names_max: int = NAMES_MAX) -> None:
        self.searched_to = MessageId(0)
        """Everything before this id was searched."""
        self._opened_id = opened_id
        self._names_max = names_max
        self._names: set[str] = set()
        self._too_many = False

    def knows(self, vchannel: str) -> bool | None:
        """Whether a message has named it; None: search on from `searched_to`.

        True when there were too many names to remember: nothing that may exist is denied.
        """
        if vchannel in self._names or self._too_many:
            return True
        return False if self.searched_to >= self._opened_id else None

    def add(self, names: Iterable[str]) -> None:
        """Take note of the vchannels of stored messages."""
        self._names.update(names)
        if len(self._names) > self._names_max:
            self._too_many = True
            self._names.clear()

    def add_found(self, names: Iterable[str], end: MessageId) -> None:
        """Take note of what a search found before `end`."""
        self.add(names)
        self.searched_to = max(self.searched_to, end)
