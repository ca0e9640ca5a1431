"""Spreads the messages of a pack over buckets: the default rules, and those of a program."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.client.errors import TidemarkError
from broker.core.msgstream.buckets import (
    BadRepack,
    buckets_of,
    check_buckets,
    only_bucket,
    rows_by_bucket,
)
from broker.msgstream.messages.encoded_msg import EncodedMsg
from broker.msgstream.messages.msg_type import MsgType
from broker.msgstream.messages.row_msgs import DeleteMsg, InsertMsg
from broker.msgstream.messages.ts_msg import MsgPack, TsMsg
from broker.msgstream.stream_errors import RepackFailed

RepackFunc = Callable[[Sequence[TsMsg], Sequence[Sequence[int]]], Mapping[int, MsgPack]]
"""Messages, and the bucket of each hash key of each; returns what goes to each bucket."""


def repacked(
    msgs: Sequence[TsMsg], channels: int, own: RepackFunc | None = None
) -> dict[int, Sequence[TsMsg]]:
    """The messages for each bucket, in their order; `own` replaces the default rule.

    The default is that of the first message's type. RepackFailed: the messages do not fit the rule,
    or the program's rule raised or named a bucket without a channel; nothing was sent then.
    """
    if own is None and (whole := _encoded_whole(msgs, channels)) is not None:
        return whole
    try:
        buckets = buckets_of([it.hash_keys for it in msgs], channels)
        packs = (own or _RULES.get(msgs[0].type, default_repack))(msgs, buckets)
        check_buckets(list(packs), channels)
    except TidemarkError:
        raise
    except BadRepack as error:
        raise RepackFailed(str(error)) from None
    except Exception as error:
        raise RepackFailed(f"the repack function raised {error!r}; nothing was sent") from error
    return {bucket: pack.msgs for bucket, pack in packs.items() if pack.msgs}


def _encoded_whole(msgs: Sequence[TsMsg], channels: int) -> dict[int, Sequence[TsMsg]] | None:
    """The result for encoded messages with one key each, as the rules have it; None for others.

    In one pass: encoded messages are for programs that forward many.
    """
    if set(map(type, msgs)) != {EncodedMsg}:
        return None
    keys = [it.hash_keys for it in msgs]
    if set(map(len, keys)) != {1} or len({it.type for it in msgs}) > 1:
        return None  # the rules say what is wrong, if anything is
    if channels == 1:
        return {0: msgs}
    found: dict[int, list[TsMsg]] = {}
    for it, (key,) in zip(msgs, keys, strict=True):
        found.setdefault(key % channels, []).append(it)
    return {**found}


def insert_repack(msgs: Sequence[TsMsg], buckets: Sequence[Sequence[int]]) -> Mapping[int, MsgPack]:
    """Each row becomes an Insert of its own, in its bucket."""
    return _by_rows(msgs, buckets, InsertMsg)


def delete_repack(msgs: Sequence[TsMsg], buckets: Sequence[Sequence[int]]) -> Mapping[int, MsgPack]:
    """Each primary key becomes a Delete of its own, in its bucket."""
    return _by_rows(msgs, buckets, DeleteMsg)


def default_repack(
    msgs: Sequence[TsMsg], buckets: Sequence[Sequence[int]]
) -> Mapping[int, MsgPack]:
    """Each message goes whole to the bucket of its only hash key."""
    found: dict[int, list[TsMsg]] = {}
    for index, (it, some) in enumerate(zip(msgs, buckets, strict=True)):
        found.setdefault(only_bucket(index, it.type.name, some), []).append(it)
    return {bucket: MsgPack(some) for bucket, some in found.items()}


def _by_rows(
    msgs: Sequence[TsMsg],
    buckets: Sequence[Sequence[int]],
    wanted: type[InsertMsg] | type[DeleteMsg],
) -> Mapping[int, MsgPack]:
    found: dict[int, list[TsMsg]] = {}
    for index, (it, some) in enumerate(zip(msgs, buckets, strict=True)):
        if isinstance(it, EncodedMsg) and it.type == wanted.kind:
            # Encoded rows are not taken apart: one with one key goes whole.
            found.setdefault(only_bucket(index, it.type.name, some), []).append(it)
            continue
        if not isinstance(it, wanted):
            raise BadRepack(
                f"message {index} is {it.type.name}, but the pack began with {wanted.kind.name};"
                " produce them in packs of their own"
            )
        for bucket, rows in rows_by_bucket(index, it.type.name, some, it.columns).items():
            whole = len(rows) == len(some) == 1
            found.setdefault(bucket, []).extend([it] if whole else [it.picked(row) for row in rows])
    return {bucket: MsgPack(some) for bucket, some in found.items()}


_RULES: Final[Mapping[MsgType, RepackFunc]] = {
    MsgType.INSERT: insert_repack,
    MsgType.DELETE: delete_repack,
}
