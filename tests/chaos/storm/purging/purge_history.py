"""What was written to vchannels that are purged, what their group acknowledged, and the purges."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.chaos.storm.ddl_history import Told


class Written(NamedTuple):
    """A message that was acknowledged; one of a transaction has the tick of its commit."""

    vchannel: str
    payload: bytes
    tick: int
    ended_s: float


class Tried(NamedTuple):
    """A message or a transaction of which nobody knows whether it is stored."""

    vchannel: str
    began_s: float
    ended_s: float


class Purged(NamedTuple):
    """Somebody asked that messages up to the tick are removed."""

    vchannel: str
    upto: int
    began_s: float
    ended_s: float
    told: Told


class Settled(NamedTuple):
    """A member asked to have messages acknowledged, and was not refused."""

    vchannel: str
    began_s: float
    payloads: frozenset[bytes]


class Look(NamedTuple):
    """Somebody read a vchannel from its oldest message to its end: the ticks by payload.

    `torn`: what the reader was told instead of the end; "" for nothing. `overtaken`: it was told
    that a purge up to this tick took what it had not read yet, behind `read_to`, the tick of the
    newest message that it was given; 0: it was not told so.
    """

    vchannel: str
    began_s: float
    ended_s: float
    found: dict[bytes, int]
    torn: str = ""
    overtaken: int = 0
    read_to: int = 0


@dataclass(slots=True)
class PurgeHistory:
    """A group reads each vchannel from its first message on, but for the `unread`.

    The `retained` are of a collection with a retention, which removes what no group needs.
    """

    written: list[Written] = field(default_factory=list)
    purged: list[Purged] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    retained: set[str] = field(default_factory=set)

    def of(self, vchannel: str) -> "PurgeHistory":
        """The part of one vchannel."""
        return PurgeHistory(
            [it for it in self.written if it.vchannel == vchannel],
            [it for it in self.purged if it.vchannel == vchannel],
            [it for it in self.settled if it.vchannel == vchannel],
            [it for it in self.looks if it.vchannel == vchannel],
            [it for it in self.tried if it.vchannel == vchannel],
            self.unread & {vchannel},
            self.retained & {vchannel},
        )

    def only(self, payloads: Collection[bytes]) -> "PurgeHistory":
        """The part that these messages have, with all purges."""
        looks = [
            it._replace(found={each: it.found[each] for each in payloads if each in it.found})
            for it in self.looks
        ]
        return PurgeHistory(
            [it for it in self.written if it.payload in payloads],
            self.purged,
            [it for it in self.settled if not it.payloads.isdisjoint(payloads)],
            looks,
            self.tried,
            self.unread,
            self.retained,
        )

    def lines(self) -> Iterator[str]:
        """One for each thing that happened, in the order of time."""
        told = [
            (it.began_s, f"{it.ended_s:9.3f} purge of {it.vchannel} to {it.upto}: {it.told.value}")
            for it in self.purged
        ]
        told += [
            (it.began_s, f"acknowledged on {it.vchannel}: {sorted(it.payloads)[:20]}")
            for it in self.settled
        ]
        told += [(it.ended_s, f"written {it}") for it in self.written[:50]]
        told += [
            (it.began_s, f"{it.ended_s:9.3f} read of {it.vchannel}: {it.torn or it.found}")
            for it in self.looks
            if not it.overtaken
        ]
        told += [
            (it.began_s, f"{it.ended_s:9.3f} read of {it.vchannel}: {_overtaken(it)}")
            for it in self.looks
            if it.overtaken
        ]
        told += [(it.began_s, f"{it.ended_s:9.3f} not known: {it}") for it in self.tried[:50]]
        for at_s, text in sorted(told):
            yield f"{at_s:9.3f} {text}"


def _overtaken(look: Look) -> str:
    return f"up to tick {look.read_to}, overtaken by a purge up to {look.overtaken}: {look.found}"
