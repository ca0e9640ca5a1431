"""The switch of a cluster's log from one place to another, as a state machine. Pure.

One `Alter` for the cluster says which stage it is in, one `ChannelAlter` for each pchannel how far
it is. The owner of a pchannel does what `task_of` says and records it; when all have, `advanced`
gives the next stage. Both are stored by compare-and-set, so each step is decided once.

    COPYING -> SWITCHING -> DROPPING -> DONE
       \\-> ABORTING -> ABORTED

The point of no return is the begin of SWITCHING: from then on a pchannel may have its newest
messages in the target alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from broker.model.ids import MessageId, PChannelName

SEGMENTED: Final = ""
"""The place of a log in segment files; any other place is the URL of a Kafka."""


class AlterStage(Enum):
    """The stored names are those of the members, in lower case."""

    COPYING = auto()
    SWITCHING = auto()
    DROPPING = auto()
    DONE = auto()
    ABORTING = auto()
    ABORTED = auto()


class Task(Enum):
    """What the owner of a pchannel does next for a switch."""

    NOTHING = auto()
    COPY = auto()
    """Copy and compare; appends go to the source."""
    SWITCH = auto()
    """Copy the rest while nobody appends, then have the target take the appends."""
    DROP = auto()
    """Forget the source, or leave it."""
    DISCARD = auto()
    """Forget the copy."""


class Impossible(Enum):
    """Why a switch cannot begin, or be aborted."""

    UNDER_WAY = auto()
    SAME_PLACE = auto()
    BETWEEN_KAFKAS = auto()
    NOT_UNDER_WAY = auto()
    TOO_LATE = auto()
    OLDER_NODE = auto()
    SEVERAL_HOSTS = auto()
    OTHER_SOURCE = auto()
    UNREACHABLE = auto()


@dataclass(frozen=True, slots=True)
class AlterRefusal:
    """Why nothing was changed, with what to do."""

    why: Impossible
    cause: str


@dataclass(frozen=True, slots=True)
class Alter:
    """The newest switch of a cluster. `number` counts them, from 1 on."""

    number: int
    stage: AlterStage
    source: str
    target: str
    leaves_history: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing of it is left to do."""
        return self.stage in (AlterStage.DONE, AlterStage.ABORTED)

    @property
    def place(self) -> str:
        """Where a pchannel without a record of its own has its log."""
        return self.target if self.stage in (AlterStage.DROPPING, AlterStage.DONE) else self.source


@dataclass(frozen=True, slots=True)
class ChannelAlter:
    """How far a pchannel is in the switch `number`.

    `begun`: all that the target holds is a copy. Ids below `copied_id` are in the target, those
    below `checked_id` were compared, `source_id` is the next id of the source. `close`: so little
    was left that the rest can be copied while nobody appends. `trouble`: the newest failure.
    """

    number: int
    begun: bool = False
    close: bool = False
    switched: bool = False
    ended: bool = False
    copied_id: MessageId = MessageId(0)
    checked_id: MessageId = MessageId(0)
    source_id: MessageId = MessageId(0)
    trouble: str = ""


Channels = Mapping[PChannelName, ChannelAlter | None]


def begun(
    before: Alter | None, founded: str, target: str, *, leaves_history: bool
) -> Alter | AlterRefusal:
    """A new switch to `target`. `founded`: where the log is of a cluster that never switched."""
    if before is not None and not before.ended:
        return AlterRefusal(
            Impossible.UNDER_WAY,
            f"the log is being switched to {shown(before.target)} already ({_name(before.stage)});"
            " wait for it, see `tidemark wal status`, or end it with `tidemark wal abort`",
        )
    source = founded if before is None else before.place
    if prefix_of(source) == prefix_of(target):
        return _there_already(source, target)
    if source and target:
        return AlterRefusal(
            Impossible.BETWEEN_KAFKAS,
            f"the log is in {shown(source)}, and a switch from one prefix of Kafka to another is"
            " not built; switch to segment files first: tidemark wal alter --to segmented",
        )
    number = 1 if before is None else before.number + 1
    return Alter(number, AlterStage.COPYING, source, target, leaves_history)


def aborted(alter: Alter | None) -> Alter | AlterRefusal:
    """The same switch on its way back to the source."""
    if alter is None or alter.ended:
        return AlterRefusal(
            Impossible.NOT_UNDER_WAY, "the log is not being switched; there is nothing to abort"
        )
    if alter.stage in (AlterStage.SWITCHING, AlterStage.DROPPING):
        return AlterRefusal(
            Impossible.TOO_LATE,
            f"the switch to {shown(alter.target)} cannot be aborted any more: pchannels have begun"
            " to append there; wait for it, and switch back then",
        )
    return replace(alter, stage=AlterStage.ABORTING)


def advanced(alter: Alter, channels: Channels, names: Iterable[PChannelName]) -> Alter:
    """The next stage when all pchannels are through with this one; else the same value."""
    # SWITCHING asks again how close each is: what was written since may be much.
    through = {
        AlterStage.COPYING: lambda it: it.close,
        AlterStage.SWITCHING: lambda it: it.switched,
        AlterStage.DROPPING: lambda it: it.ended,
        AlterStage.ABORTING: lambda it: it.ended,
    }.get(alter.stage)
    if through is None or not all(through(of(alter, channels.get(name))) for name in names):
        return alter
    return replace(alter, stage=_NEXT[alter.stage])


def task_of(alter: Alter | None, channel: ChannelAlter | None) -> Task:
    """What the owner of a pchannel does next."""
    if alter is None:
        return Task.NOTHING
    now = of(alter, channel)
    match alter.stage:
        case AlterStage.COPYING:
            return Task.COPY
        case AlterStage.SWITCHING if not now.switched:
            return Task.SWITCH
        case AlterStage.DROPPING if not now.ended:
            return Task.DROP
        case AlterStage.ABORTING if not now.ended:
            return Task.DISCARD
        case _:
            return Task.NOTHING


def place_of(alter: Alter | None, channel: ChannelAlter | None, founded: str) -> str:
    """Where a pchannel's log takes appends."""
    if alter is None:
        return founded
    return alter.target if of(alter, channel).switched else alter.place


def of(alter: Alter, channel: ChannelAlter | None) -> ChannelAlter:
    """The pchannel's part in this switch; what an earlier one left does not count."""
    if channel is None or channel.number != alter.number:
        return ChannelAlter(alter.number)
    return channel


def began_copy(channel: ChannelAlter, first_id: MessageId) -> ChannelAlter:
    """After the target was emptied, to begin at `first_id`."""
    return replace(
        channel, begun=True, close=False, copied_id=first_id, checked_id=first_id, trouble=""
    )


def copied(
    channel: ChannelAlter,
    copied_id: MessageId,
    checked_id: MessageId,
    source_id: MessageId,
    *,
    close: bool,
) -> ChannelAlter:
    """After a portion was copied and compared."""
    return replace(
        channel, copied_id=copied_id, checked_id=checked_id, source_id=source_id, close=close,
        trouble="",
    )  # fmt: skip


def switched(channel: ChannelAlter, next_id: MessageId) -> ChannelAlter:
    """With the target as the log that takes appends; both logs end at `next_id`."""
    assert channel.begun, channel
    return replace(
        channel, switched=True, close=True, copied_id=next_id, checked_id=next_id,
        source_id=next_id, trouble="",
    )  # fmt: skip


def ended(channel: ChannelAlter) -> ChannelAlter:
    """With nothing left of the log that is not needed any more."""
    return replace(channel, ended=True, trouble="")


def failed(channel: ChannelAlter, trouble: str) -> ChannelAlter:
    """With what keeps it from going on."""
    return replace(channel, trouble=trouble)


def spoiled(channel: ChannelAlter, trouble: str) -> ChannelAlter:
    """With a copy that is not what the log holds: it is to be begun anew."""
    # From its switch on it is the log.
    assert not channel.switched, channel
    return replace(channel, begun=False, close=False, trouble=trouble)


def prefix_of(place: str) -> str:
    """What tells two places apart: of a Kafka the prefix of its topics, not the servers to ask."""
    return place.partition("://")[2].partition("?")[0].partition("/")[2]


def _there_already(source: str, target: str) -> AlterRefusal:
    """Names the servers that may be of another Kafka, which this switch does not lead to."""
    known = _servers(source)
    others = [it for it in _servers(target) if it not in known]
    cause = f"the log is in {shown(source)} already; nothing was changed"
    if others:
        cause += (
            ": a place is known by its prefix, not by its servers; if"
            f" {', '.join(others)} are of another Kafka, switch to segment files first (tidemark"
            " wal alter --to segmented), then to that Kafka with another prefix than"
            f" {prefix_of(target)!r}"
        )
    return AlterRefusal(Impossible.SAME_PLACE, cause)


def _servers(place: str) -> list[str]:
    return place.partition("://")[2].partition("/")[0].split(",")


def shown(place: str) -> str:
    """For messages: where a log is, without how."""
    return place.partition("?")[0] if place else "segment files"


def _name(stage: AlterStage) -> str:
    return stage.name.lower()


_NEXT: Final = {
    AlterStage.COPYING: AlterStage.SWITCHING,
    AlterStage.SWITCHING: AlterStage.DROPPING,
    AlterStage.DROPPING: AlterStage.DONE,
    AlterStage.ABORTING: AlterStage.ABORTED,
}
