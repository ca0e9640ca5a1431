"""Dead letters of a group: where they go, what they say, and the way back."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from broker.client.cluster.collections import Collections
from broker.client.cluster.cursor import NamedCursors
from broker.client.cluster.server_admin import ChannelInfo
from broker.client.errors import AlreadyExists, BadTarget, NoSuchCollection
from broker.client.message import Received
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
from broker.model.ids import TimeTick
from schemas.properties.keys import DEAD_COPY

SUFFIX = ".dead"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that no member could process.

    `message`: the copy, with payload, key and the properties it had. `origin`, `vchannel`, `id` and
    `tick`: where the message itself lies. `deliveries`: how often it was delivered.

    `marked`: the broker says that it made the copy. Without the mark it is a copy by a release from
    before there were marks, or a program has appended it and says the same: nothing tells which.
    """

    message: Received
    cause: str
    deliveries: int
    group: str
    origin: str
    vchannel: str
    id: int
    tick: int
    marked: bool = True

    @property
    def properties(self) -> Mapping[str, str]:
        """Those of the program."""
        return {name: it for name, it in self.message.properties.items() if name not in MARKS}


@dataclass(frozen=True, slots=True)
class LetterParts:
    """What dead letters need of a client."""

    collections: Collections
    cursors: NamedCursors
    channels: Callable[[], Awaitable[list[ChannelInfo]]]
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
    """What a message of the collection says; None for one that does not say where it is from.

    Copies by older releases have no mark, so what programs append is believed, too. They gain
    nothing by it: what is appended again for them they could append themselves.
    """
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
            DEAD_COPY.read(message.tags),
        )
    except (KeyError, ValueError):
        return None


async def letters(parts: LetterParts, group: str, most: int | None) -> list[DeadLetter]:
    """The first dead letters of a group that the log holds; None: all. Raises NoSuchCollection."""
    if most is not None and most < 1:
        raise BadTarget(f"{most} dead letters are asked for; it must be 1 or more, or None for all")
    await check_there(parts, group)
    found: list[DeadLetter] = []
    async with parts.readers.read_batches(collection_of(group), until="now") as reader:
        async for batch in reader:
            found += [it for it in map(letter_of, batch.messages) if it is not None]
            if most is not None and len(found) >= most:
                break
    return found[:most]


async def letters_up_to(
    parts: LetterParts, places: Sequence[str], upto: TimeTick
) -> AsyncIterator[list[DeadLetter]]:
    """All dead letters that the log holds on these vchannels up to a closed tick."""
    async with parts.readers.read_batches(places, until=upto) as reader:
        async for batch in reader:
            yield [it for it in map(letter_of, batch.messages) if it is not None]


async def check_there(parts: LetterParts, group: str) -> None:
    """Raise NoSuchCollection when the group has no dead letters at all."""
    try:
        await parts.collections.get(collection_of(group))
    except NoSuchCollection as error:
        cause = (
            f"group {group!r} has no dead letters: it never had a deliveries_max, or their"
            f" collection was dropped ({error.cause})"
        )
        raise NoSuchCollection(cause, error.code) from None
