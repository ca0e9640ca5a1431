"""Dead letters of a group: where they go, what they say, and the way back."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.client.cluster.collections import Collections
from broker.client.cluster.server_admin import ChannelInfo
from broker.client.errors import AlreadyExists, BadTarget, NoSuchCollection
from broker.client.message import Appended, Message, Received
from broker.client.read.readers import Readers
from broker.core.naming import pchannel_of
from broker.model.groups.consumer_group import DeliveryLimit
from broker.model.groups.dead_letter import (
    CAUSE,
    DELIVERIES,
    GROUP,
    ID,
    MARKS,
    ORIGIN,
    TICK,
    VCHANNEL,
)

SUFFIX = ".dead"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that no member could process.

    `message`: the copy, with payload, key and the properties it had. `origin`, `vchannel`, `id` and
    `tick`: where the message itself lies. `deliveries`: how often it was delivered.
    """

    message: Received
    cause: str
    deliveries: int
    group: str
    origin: str
    vchannel: str
    id: int
    tick: int

    @property
    def properties(self) -> Mapping[str, str]:
        """Those of the program."""
        return {name: it for name, it in self.message.properties.items() if name not in MARKS}


class Appending(Protocol):
    """`Client.append_messages`."""

    def __call__(
        self, target: str, messages: Iterable[Message], *, atomic: bool = True
    ) -> Awaitable[list[Appended]]: ...


@dataclass(frozen=True, slots=True)
class LetterParts:
    """What dead letters need of a client."""

    collections: Collections
    channels: Callable[[], Awaitable[list[ChannelInfo]]]
    append: Appending
    readers: Readers


def collection_of(group: str) -> str:
    """The collection that has the dead letters of a group, whatever it reads."""
    return f"{group}{SUFFIX}"


async def limits_of(
    parts: LetterParts,
    group: str,
    target: str,
    vchannels: Sequence[str],
    deliveries_max: int | None,
) -> Mapping[str, DeliveryLimit]:
    """The limit of each vchannel; makes the collection of the dead letters. None: no limits.

    It has a vchannel on each pchannel, so that a copy and the acknowledgement of the message lie in
    one log. Raises BadTarget for a collection of this name that has not.
    """
    if deliveries_max is None:
        return {}
    name = collection_of(group)
    try:
        found = await parts.collections.create(name, shards=len(await parts.channels()))
    except AlreadyExists:
        found = await parts.collections.get(name)
    places = {pchannel_of(it): it for it in found.vchannels}
    lost = [it for it in vchannels if pchannel_of(it) not in places]
    if lost or found.schema is not None:
        why = f"no vchannel on {pchannel_of(lost[0])}" if lost else "a schema"
        raise BadTarget(
            f"collection {name!r} exists already and has {why}, so it cannot take the dead letters"
            f" of group {group!r} on {target!r}; name the group otherwise, or drop the collection"
        )
    return {it: DeliveryLimit(deliveries_max, places[pchannel_of(it)], target) for it in vchannels}


def letter_of(message: Received) -> DeadLetter | None:
    """What a message of the collection says; None for one that is no copy of a dead message."""
    tags = message.properties
    try:
        return DeadLetter(
            message,
            tags[CAUSE],
            int(tags[DELIVERIES]),
            tags[GROUP],
            tags[ORIGIN],
            tags[VCHANNEL],
            int(tags[ID]),
            int(tags[TICK]),
        )
    except (KeyError, ValueError):
        return None


async def letters(parts: LetterParts, group: str) -> list[DeadLetter]:
    """All dead letters of a group that the log holds. Raises NoSuchCollection."""
    found: list[DeadLetter] = []
    try:
        async for batch in parts.readers.read_batches(collection_of(group), until="now"):
            found += [it for it in map(letter_of, batch.messages) if it is not None]
    except NoSuchCollection as error:
        raise _has_none(group, error) from None
    return found


async def redriven(parts: LetterParts, group: str, target: str, vchannels: Sequence[str]) -> int:
    """Append those again that came from these vchannels, and were not by an earlier call."""
    try:
        await parts.collections.get(collection_of(group))
    except NoSuchCollection as error:
        raise _has_none(group, error) from None
    cursor, done = f"redrive.{group}.{target}", 0
    reader = parts.readers.read_batches(collection_of(group), start=cursor, until="now")
    async for batch in reader:
        found = [letter_of(it) for it in batch.messages]
        mine = [it for it in found if it is not None and it.vchannel in vchannels]
        for vchannel in {it.vchannel for it in mine}:
            again = [
                Message(it.message.payload, it.message.key, it.properties)
                for it in mine
                if it.vchannel == vchannel
            ]
            await parts.append(vchannel, again, atomic=False)
        done += len(mine)
        await reader.commit()
    return done


def _has_none(group: str, error: NoSuchCollection) -> NoSuchCollection:
    cause = f"group {group!r} has no dead letters: it has no deliveries_max ({error.cause})"
    return NoSuchCollection(cause, error.code)
