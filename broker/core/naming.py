"""Names of pchannels, vchannels and collections: how to build, parse and validate them.

Milvus's clients rely on these forms.
"""

import re

from broker.model.failure import Refusal, invalid_argument
from broker.model.ids import CollectionId, PChannelName, VChannelName

PCHANNELS_MAX = 1024
"""More logs than this on one machine are a typing error, not a plan."""

COLLECTION_NAME_LENGTH_MAX = 255

PCHANNEL_NAME_LENGTH_MAX = 128

VCHANNEL_NAME_LENGTH_MAX = 256
"""Every node that has seen a message of it keeps the name in memory and in its snapshots."""

_CONTROL_SUFFIX = "vcchan"
_INT64_MAX = (1 << 63) - 1
_COLLECTION_ID = re.compile(r".*_([0-9]+)v[0-9]+", re.DOTALL)
_COLLECTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$.-]*")
_LIKE_VCHANNEL = re.compile(r".*_([0-9]+v[0-9]+|vcchan)", re.DOTALL)
_LIKE_PCHANNEL = "-rootcoord-dml_"
_PCHANNEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def pchannel_names(cluster: str, count: int) -> tuple[PChannelName, ...]:
    """The pchannel names of a cluster, by number."""
    return tuple(PChannelName(f"{cluster}-rootcoord-dml_{index}") for index in range(count))


def pchannel_name_refusal(name: str) -> Refusal | None:
    """Why this cannot name a pchannel; None if it can.

    The name is also used for a folder and for an actor.
    """
    if len(name) > PCHANNEL_NAME_LENGTH_MAX or not _PCHANNEL_NAME.fullmatch(name):
        return invalid_argument(
            f"pchannel name {_shown(name)} must start with a letter, digit or '_', contain only "
            f"these, '-' and '.', and have at most {PCHANNEL_NAME_LENGTH_MAX} characters"
        ).refusal
    return None


def vchannel_name(pchannel: PChannelName, collection: CollectionId, shard: int) -> VChannelName:
    """The vchannel of one shard of a collection, on the pchannel it was placed on."""
    return VChannelName(f"{pchannel}_{collection}v{shard}")


def control_host(pchannels: tuple[PChannelName, ...]) -> PChannelName:
    """The pchannel that carries the control channel: the first one in string order."""
    return min(pchannels)


def control_channel(host: PChannelName) -> VChannelName:
    """The control channel of a cluster whose `control_host` this is."""
    return VChannelName(f"{host}_{_CONTROL_SUFFIX}")


def is_control_channel(name: str) -> bool:
    """Whether this is the control channel, which orders cluster-wide changes."""
    return name.endswith(_CONTROL_SUFFIX)


def is_physical(name: str) -> bool:
    """Whether this is a pchannel name: no letter `v` after its last underscore."""
    # A vchannel ends in `_{collection}v{shard}` or `_vcchan`. Without a `_` there is no such
    # ending.
    return "v" not in name.rpartition("_")[2] or "_" not in name


def pchannel_of(name: str) -> PChannelName:
    """The pchannel that a channel name belongs to; a pchannel belongs to itself."""
    return PChannelName(name if is_physical(name) else name.rpartition("_")[0])


def belongs_to(name: str, pchannel: PChannelName) -> bool:
    """Whether messages for `name` may go to `pchannel`. A vchannel needs no creation."""
    # `pchannel_of` without its calls: every append passes here twice.
    head, mark, end = name.rpartition("_")
    return (head if mark and "v" in end else name) == pchannel


def new_vchannel_fault(name: str, pchannel: PChannelName) -> str:
    """What is wrong with a vchannel that a message for this pchannel names; "" for nothing.

    Messages of it may be stored already, so this is asked of new messages only.
    """
    if not belongs_to(name, pchannel):
        return f"vchannel {_shown(name)} is not on pchannel {pchannel!r} of this stream"
    if len(name) > VCHANNEL_NAME_LENGTH_MAX:
        return (
            f"vchannel {_shown(name)} has {len(name)} characters; at most"
            f" {VCHANNEL_NAME_LENGTH_MAX} are allowed"
        )
    if not name.isascii() or not name.isprintable():
        return f"vchannel {_shown(name)} must consist of printable ASCII characters"
    return ""


def collection_id_of(vchannel: str) -> CollectionId | None:
    """The collection id inside a vchannel name; None when it is not a collection's vchannel."""
    found = _COLLECTION_ID.fullmatch(vchannel)
    # Without leading zeros first: Python refuses to convert thousands of digits.
    if found is None or len(digits := found[1].lstrip("0")) > 19 or int(digits or 0) > _INT64_MAX:
        return None
    return CollectionId(int(digits or 0))


def collection_name_refusal(name: str) -> Refusal | None:
    """Why this cannot name a collection; None if it can.

    Milvus's rule, and '-' and '.' in addition. Nothing that looks like a channel's name is allowed,
    so that no name stands for two things.
    """
    if len(name) > COLLECTION_NAME_LENGTH_MAX:
        return invalid_argument(
            f"collection name {_shown(name)} has {len(name)} characters; "
            f"at most {COLLECTION_NAME_LENGTH_MAX} are allowed"
        ).refusal
    if not _COLLECTION_NAME.fullmatch(name):
        return invalid_argument(
            f"collection name {_shown(name)} must start with a letter or '_' "
            "and contain only letters, digits, '_', '$', '-' and '.'"
        ).refusal
    if looks_like_channel(name):
        return invalid_argument(
            f"collection name {_shown(name)} could be taken for a channel: it contains"
            f" '{_LIKE_PCHANNEL}', or ends as a vchannel does (_1v0, _vcchan); choose another name"
        ).refusal
    return None


def looks_like_channel(name: str) -> bool:
    """Whether this has the form of a pchannel, of a collection's vchannel or of a control channel.

    Other forms name a channel only if their pchannel exists.
    """
    return _LIKE_PCHANNEL in name or _LIKE_VCHANNEL.fullmatch(name) is not None


def _shown(name: str) -> str:
    """A name for an error text: quoted, escaped, and shortened."""
    return repr(name) if len(name) <= 80 else repr(name[:77]) + "…"
