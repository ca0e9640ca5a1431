"""Commits of batches in the metadata store: for each app one record, in JSON, for people to read.

Owns the records, and keeps nothing in memory.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker.core.txn.batch_commit import AppRecord, CommitAttempt, CommitState, CommittedBatch
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TimeTick, TxnId, VChannelName
from broker.model.stage import BatchCommit, StagedTxn
from broker.ports.meta import MetaError, MetaStore

VERSION: Final = 1
APP_PREFIX: Final = "commit/app/"


@dataclass(frozen=True, slots=True)
class RecordedApp:
    """What is remembered of an app, and the revision of its record; 0: there is none yet."""

    known: AppRecord
    revision: int = 0


class CommitRecords:
    """The records of one store. Every call may raise MetaError, and has then changed nothing."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def load(self) -> Sequence[RecordedApp]:
        """All there are."""
        entries = await self._store.list(APP_PREFIX)
        return [RecordedApp(decode_app(key, it.value), it.revision) for key, it in entries]

    async def read(self, app: str) -> RecordedApp | None:
        """One app's; None when nothing is remembered of it."""
        key = APP_PREFIX + app
        entry = await self._store.get(key)
        return None if entry is None else RecordedApp(decode_app(key, entry.value), entry.revision)

    async def save(self, before: RecordedApp, known: AppRecord) -> RecordedApp:
        """Replace exactly `before`; Conflict when somebody else has the app by now."""
        key = APP_PREFIX + known.app
        revision = await self._store.write({key: encode_app(known)}, expect={key: before.revision})
        return RecordedApp(known, revision)

    async def forget(self, apps: Sequence[RecordedApp]) -> None:
        """Remove exactly these; Conflict when one of them is not as it was."""
        expected = {APP_PREFIX + it.known.app: it.revision for it in apps}
        await self._store.write({}, deletes=list(expected), expect=expected)


def encode_app(known: AppRecord) -> bytes:
    """The record of one app."""
    return json.dumps(
        {
            "version": VERSION,
            "app": known.app,
            "done": known.done and _done_fields(known.done),
            "attempt": known.attempt and _attempt_fields(known.attempt),
        },
        separators=(",", ":"),
    ).encode()


def decode_app(key: str, value: bytes) -> AppRecord:
    """What it says. MetaError for a record this version cannot read."""
    try:
        fields = json.loads(value)
        if fields["version"] != VERSION:
            found = fields["version"]
            raise MetaError(f"{key}: record version {found}; this program knows version {VERSION}")
        app = fields["app"]
        done, attempt = fields["done"], fields["attempt"]
        return AppRecord(
            app,
            None if done is None else _done(done),
            None if attempt is None else _attempt(app, attempt),
        )
    except (ValueError, TypeError, LookupError) as error:
        raise MetaError(f"{key}: stored record is unreadable: {error!r}") from error


def _done_fields(done: CommittedBatch) -> Mapping[str, Any]:
    return {"batch": done.batch, "ticks": dict(done.ticks), "done_ms": done.done_ms}


def _done(fields: Mapping[str, Any]) -> CommittedBatch:
    ticks = {VChannelName(name): TimeTick(int(it)) for name, it in fields["ticks"].items()}
    return CommittedBatch(int(fields["batch"]), ticks, int(fields["done_ms"]))


def _attempt_fields(attempt: CommitAttempt) -> Mapping[str, Any]:
    refusal = attempt.refusal
    return {
        "batch": attempt.asked.batch,
        "state": attempt.state.name,
        "txns": [[it.vchannel, it.txn_id, it.part, it.attempt] for it in attempt.asked.txns],
        "token": attempt.token,
        "refusal": None if refusal is None else [refusal.code.name, refusal.cause],
    }


def _attempt(app: str, fields: Mapping[str, Any]) -> CommitAttempt:
    """Nobody has answered yet, as far as this incarnation knows."""
    txns = tuple(
        StagedTxn(VChannelName(vchannel), TxnId(int(txn_id)), int(part), int(attempt))
        for vchannel, txn_id, part, attempt in fields["txns"]
    )
    asked = BatchCommit(app, int(fields["batch"]), txns)
    refusal = fields["refusal"]
    return CommitAttempt(
        asked,
        CommitState[fields["state"]],
        frozenset(txns),
        None if refusal is None else Refusal(StreamingCode[refusal[0]], refusal[1]),
        token=int(fields["token"]),
    )
