"""What a name stands for in a cluster: a collection, a vchannel, a pchannel, the control channel.

Collections go first: releases that allowed names such as `a_1v0` may have left some. New names that
could be taken for a channel are refused, so a channel is never hidden.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from broker.core.naming import (
    COLLECTION_NAME_LENGTH_MAX,
    control_host,
    is_control_channel,
    is_physical,
    looks_like_channel,
    pchannel_of,
)
from broker.model.collection import Collection
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName


class NameKind(Enum):
    """OTHER_VCHANNEL: of no collection; only the log of its pchannel knows whether it exists."""

    COLLECTION = auto()
    VCHANNEL = auto()
    PCHANNEL = auto()
    CONTROL = auto()
    OTHER_VCHANNEL = auto()


@dataclass(frozen=True, slots=True)
class FoundName:
    """`collection`: the one of this name, or the one that the vchannel belongs to."""

    kind: NameKind
    collection: Collection | None = None


def found_name(
    name: str, collections: Iterable[Collection], pchannels: Sequence[PChannelName]
) -> FoundName:
    """What the name stands for. Raises Refused(CHANNEL_NOT_EXIST) for a name of nothing."""
    of_vchannel: Collection | None = None
    for each in collections:
        if each.name == name:
            return FoundName(NameKind.COLLECTION, each)
        if name in each.vchannels:
            of_vchannel = each
    if of_vchannel is not None:
        return FoundName(NameKind.VCHANNEL, of_vchannel)
    pchannel = pchannel_of(name)
    if pchannel not in pchannels:
        raise _nothing(_no_pchannel(name, pchannels))
    if is_physical(name):
        return FoundName(NameKind.PCHANNEL)
    if not is_control_channel(name):
        return FoundName(NameKind.OTHER_VCHANNEL)
    host = control_host(tuple(pchannels))
    if pchannel != host:
        raise _nothing(f"{name!r} is not the control channel; that is on pchannel {host!r}")
    return FoundName(NameKind.CONTROL)


def _no_pchannel(name: str, pchannels: Sequence[PChannelName]) -> str:
    if not looks_like_channel(name):
        return f"there is no collection {name[:COLLECTION_NAME_LENGTH_MAX]!r}"
    first, last = pchannels[0], pchannels[-1]
    return (
        f"there is no channel {name[:COLLECTION_NAME_LENGTH_MAX]!r}: the pchannels of this cluster"
        f" are {first} to {last.rpartition('_')[2]}, and no collection has this name"
    )


def _nothing(cause: str) -> Refused:
    return Refused(StreamingCode.CHANNEL_NOT_EXIST, cause)
