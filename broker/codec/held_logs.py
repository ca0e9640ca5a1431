"""Wire forms of holds on the log: between nodes and their coordinator, and for operators."""

from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.model.retention.holders import (
    Hold,
    HolderKind,
    Holding,
    PassCause,
    Passed,
    Removal,
)
from broker.model.retention.policy import LogStart
from schemas.generated.tidemark import v1


def encode_start(name: PChannelName, it: LogStart) -> v1.LogStart:
    """Where the log of a pchannel begins."""
    return v1.LogStart(pchannel=name, first_id=it.first_id, removed_tick=it.removed_tick)


def decode_start(it: v1.LogStart) -> LogStart:
    """Without the pchannel."""
    return LogStart(MessageId(it.first_id), TimeTick(it.removed_tick))


def encode_hold(name: PChannelName, it: Hold) -> v1.Hold:
    """A hold on a pchannel."""
    return v1.Hold(
        pchannel=name,
        kind=it.kind,
        name=it.name,
        time_tick=it.tick,
        from_id=it.from_id,
        bytes_max=it.bytes_max,
        until_ms=it.until_ms,
        vchannels=sorted(it.vchannels),
    )


def decode_hold(it: v1.Hold) -> Hold:
    """Without the pchannel. Raises ValueError for an unknown kind."""
    return Hold(
        HolderKind(it.kind),
        it.name,
        TimeTick(it.time_tick),
        MessageId(it.from_id),
        it.bytes_max,
        it.until_ms,
        frozenset(it.vchannels),
    )


def encode_removal(name: PChannelName, it: Removal) -> v1.Removal:
    """What is removed of a pchannel."""
    return v1.Removal(
        pchannel=name,
        first_id=it.first_id,
        time_tick=it.tick,
        bytes=it.bytes,
        holders=[encode_holder(name, each) for each in it.holders],
        passed=[encode_passed(name, each) for each in it.passed],
    )


def decode_removal(it: v1.Removal) -> Removal:
    """Without the pchannel. Raises ValueError for an unknown kind or cause."""
    return Removal(
        MessageId(it.first_id),
        TimeTick(it.time_tick),
        it.bytes,
        tuple(
            Holding(HolderKind(each.kind), each.name, each.bytes, each.bytes_max, each.until_ms)
            for each in it.holders
        ),
        tuple(
            Passed(
                HolderKind(each.kind),
                each.name,
                PassCause(each.cause),
                each.bytes,
                each.limit,
                TimeTick(each.removed_tick),
                each.passed_ms,
            )
            for each in it.passed
        ),
    )


def encode_holder(name: PChannelName, it: Holding) -> v1.LogHolder:
    """Who holds back how much of a pchannel."""
    return v1.LogHolder(
        pchannel=name,
        kind=it.kind,
        name=it.name,
        bytes=it.bytes,
        bytes_max=it.bytes_max,
        until_ms=it.until_ms,
    )


def encode_passed(name: PChannelName, it: Passed) -> v1.PassedHolder:
    """Who lost messages of a pchannel."""
    return v1.PassedHolder(
        pchannel=name,
        kind=it.kind,
        name=it.name,
        cause=it.cause,
        bytes=it.bytes,
        limit=it.limit,
        removed_tick=it.removed_tick,
        passed_ms=it.passed_ms,
    )
