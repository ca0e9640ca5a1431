"""Where each group is: what it was answered, what of it is stored, and who waits for more."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio


@dataclass(slots=True, eq=False)
class GroupPlace:
    """The place of a group on a channel. `answered`: the next id after what consumers were given.

    It is stored only when a consumer comes back: until then nobody knows that it has processed what
    it was given.
    """

    group: str
    channel: str
    answered: int
    manual: bool = False
    """Whether only `commit` says what is processed."""
    lock: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))
    """Held over a read, a seek: each message goes to one of several consumers."""


class GroupPlaces:
    """The places of all groups that were used, and the events of channels."""

    def __init__(self) -> None:
        self._places: dict[str, dict[str, GroupPlace]] = {}
        self._changes: dict[str, asyncio.Event] = {}

    def find(self, group: str, channel: str) -> GroupPlace | None:
        """The place, if the group was used since it was created."""
        return self._places.get(channel, {}).get(group)

    def add(self, group: str, channel: str, stored: int) -> GroupPlace:
        """A place that begins where the stored position is."""
        place = GroupPlace(group, channel, stored)
        self._places.setdefault(channel, {})[group] = place
        return place

    def drop(self, group: str, channel: str) -> None:
        """Forget the place of a group that was destroyed."""
        self._places.get(channel, {}).pop(group, None)

    def on_channel(self, channel: str) -> list[GroupPlace]:
        """All places on a channel."""
        return list(self._places.get(channel, {}).values())

    def everywhere(self) -> list[GroupPlace]:
        """All places."""
        return [place for on in self._places.values() for place in on.values()]

    def next_change(self, channel: str) -> asyncio.Event:
        """Set at the next change of the channel. Take it before you check what you wait for."""
        return self._changes.setdefault(channel, asyncio.Event())

    def wake(self, channels: Iterable[str]) -> None:
        """Set the events of these channels; later callers get new ones."""
        for name in channels:
            event = self._changes.pop(name, None)
            if event is not None:
                event.set()

    def wake_all(self) -> None:
        """Set all events."""
        self.wake(list(self._changes))
