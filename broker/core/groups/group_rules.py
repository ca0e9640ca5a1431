"""What a group may be called, how it may be set, and how many there may be."""

import re
from typing import Final

from broker.core.groups.group_changes import AckedInTxn
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import DeliveryLimit, GroupKey
from broker.model.groups.group_mode import GroupMode

GROUPS_MAX: Final = 4096
"""Of one pchannel."""
MEMBERS_MAX: Final = 1024
LEASES_MAX: Final = 1024
SPANS_MAX: Final = 4096
"""Acknowledged spans above the floor. From half of them on nothing new is leased, so that the other
half remains for what is leased already."""

LEASE_MS: Final = 30_000
LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 12 * 3600 * 1000
NACK_MS_MAX: Final = 24 * 3600 * 1000

DELIVERIES_MIN: Final = 2
"""The last delivery of a message is one on its own, so that only what fails by itself dies."""
DELIVERIES_MAX: Final = 1000
TRIED_MAX: Final = 4096
"""Recorded spans of messages that were delivered before; beyond them counts are in memory only."""
DYING_MAX: Final = 1024
"""Decisions about dead letters that are not carried out yet."""
CAUSE_LENGTH_MAX: Final = 1024

NAME_LENGTH_MAX: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def name_refusal(name: str) -> Refusal | None:
    """Why this cannot name a group; None if it can."""
    if len(name) <= NAME_LENGTH_MAX and _NAME.fullmatch(name):
        return None
    return _wrong(
        f"group name {name[:80]!r} must have 1 to {NAME_LENGTH_MAX} letters, digits, '_', '-' and"
        " '.', and begin with a letter, a digit or '_'"
    )


def lease_refusal(lease_ms: int) -> Refusal | None:
    """Why leases of a group cannot last so long; None if they can."""
    if LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        return None
    return _wrong(f"a lease of {lease_ms} ms is not within {LEASE_MS_MIN} to {LEASE_MS_MAX} ms")


def limit_refusal(limit: DeliveryLimit | None) -> Refusal | None:
    """Why a group cannot limit deliveries so; None if it can."""
    if limit is None or DELIVERIES_MIN <= limit.deliveries_max <= DELIVERIES_MAX:
        return None
    return _wrong(
        f"deliveries_max of {limit.deliveries_max} is not within {DELIVERIES_MIN} to"
        f" {DELIVERIES_MAX}; leave it out for no limit"
    )


def reject_refusal(limit: DeliveryLimit | None, cause: str) -> Refusal | None:
    """Why messages cannot be rejected with this cause; None if they can."""
    if limit is None:
        return _wrong("the group has no dead letters; give it a deliveries_max, or nack instead")
    if len(cause) <= CAUSE_LENGTH_MAX:
        return None
    return _wrong(f"a cause has {len(cause)} characters; at most {CAUSE_LENGTH_MAX}")


def nack_refusal(delay_ms: int) -> Refusal | None:
    """Why messages cannot come again after this delay; None if they can."""
    if 0 <= delay_ms <= NACK_MS_MAX:
        return None
    return _wrong(f"a delay of {delay_ms} ms is not within 0 to {NACK_MS_MAX} ms")


def mode_refusal(key: GroupKey, asked: GroupMode | None, mode: GroupMode) -> Refusal | None:
    """Why a group of this mode is not the one that is asked for; None if it is."""
    if asked in (None, mode):
        return None
    return _wrong(
        f"group {key.name!r} on {key.vchannel} has the mode {mode.value!r}, not {asked.value!r}; a"
        " mode cannot be changed: drop the group, or take another name"
    )


def no_group(vchannel: str, name: str) -> Refusal:
    """There is no group of this name on the vchannel.

    Not CHANNEL_NOT_EXIST, by which clients look for another node.
    """
    cause = f"no group {name!r} on {vchannel}; create it first"
    return Refusal(StreamingCode.UNRECOVERABLE, cause)


def ack_refusal(change: AckedInTxn) -> Refusal:
    """What a transaction is to acknowledge is acknowledged, or held by another one."""
    cause = (
        f"transaction {change.txn} cannot acknowledge messages of group {change.name!r} that are"
        " acknowledged, or that another transaction has; roll it back"
    )
    return Refusal(StreamingCode.INVALID_REQUEST_SEQ, cause)


def _wrong(cause: str) -> Refusal:
    return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
