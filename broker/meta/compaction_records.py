"""The record of how far one vchannel is compacted by key, beside the snapshot of its pchannel."""

import json
from typing import Final

from broker.core.compaction.compaction_table import (
    UnreadableCompaction,
    decode_compacted,
    encode_compacted,
)
from broker.meta.recovery_records import SnapshotKeys, Unreadable
from broker.model.ids import TimeTick
from broker.model.retention.compaction import Compacted
from broker.unreadable import UNREADABLE

VERSION: Final = 1


def compacted_keys(keys: SnapshotKeys) -> str:
    """The prefix of the records of a pchannel, each at its vchannel."""
    return f"{keys.prefix}compacted/"


def encode_stored_compacted(it: Compacted) -> bytes:
    """The record of one vchannel."""
    said = json.loads(encode_compacted(it))
    fields = {"version": VERSION, "vchannel": it.vchannel, "tick": it.tick, **said}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_stored_compacted(value: bytes) -> Compacted:
    """How far it is; raises Unreadable."""
    try:
        fields = json.loads(value)
        if fields["version"] != VERSION:
            raise Unreadable(f"version {fields['version']!r}; this program reads {VERSION}")
        return decode_compacted(str(fields["vchannel"]), value, TimeTick(int(fields["tick"])))
    except (*UNREADABLE, UnreadableCompaction) as error:
        raise Unreadable(f"not a compaction: {error!r}") from error
