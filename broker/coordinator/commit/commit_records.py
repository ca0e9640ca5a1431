"""The records of batch commits in the metadata store: JSON, one for each app."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio

from broker.coordinator.json_records import decode_fields, encode_fields
from broker.core.txn.batch_commit import AppRecord, CommitAttempt, CommitState, CommittedBatch
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TimeTick, TxnId, VChannelName
from broker.model.stage import BatchCommit, StagedTxn
from broker.ports.meta import Conflict, MetaError, MetaStore, WriteTooLarge, WriteUnconfirmed
from broker.ports.meta_writes import VALUE_BYTES_MAX, all_entries, split_write

APP_PREFIX: Final = "commit/app/"
CAUSE_LENGTH_MAX: Final = 2000
READ_S: Final = 5.0
"""How long a write without an answer may hold up other commits while it is read back."""


@dataclass(frozen=True, slots=True)
class RecordedApp:
    """An app's record and its revision; 0: it is not stored yet, as far as is known."""

    known: AppRecord
    revision: int = 0


class CommitRecords:
    """The records of one store. MetaError: nothing has changed, unless it is WriteUnconfirmed."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def load(self) -> Sequence[RecordedApp]:
        """The records of all apps."""
        return [
            RecordedApp(decode_app(key, it.value), it.revision)
            async for key, it in all_entries(self._store, APP_PREFIX)
        ]

    async def read(self, app: str) -> RecordedApp | None:
        """The record of one app; None when there is none."""
        key = APP_PREFIX + app
        entry = await self._store.get(key)
        return None if entry is None else RecordedApp(decode_app(key, entry.value), entry.revision)

    async def begin(self, before: RecordedApp, known: AppRecord) -> RecordedApp:
        """Like `save`, for the first record of a commit. WriteTooLarge if it could not be stored
        to its end: later records are not much larger.

        A write whose answer was lost is read back. WriteUnconfirmed when that cannot be done.
        """
        size = len(encode_app(known))
        if size > VALUE_BYTES_MAX:
            raise WriteTooLarge(1, size)
        try:
            return await self.save(before, known)
        except WriteUnconfirmed as error:
            return await self._begun(before, known, error)

    async def _begun(
        self, before: RecordedApp, known: AppRecord, error: WriteUnconfirmed
    ) -> RecordedApp:
        """The record, if it was stored after all; MetaError if not."""
        key = APP_PREFIX + known.app
        try:
            with anyio.fail_after(READ_S):
                found = await self._store.get(key)
        except (MetaError, TimeoutError) as unread:
            cause = str(unread) or f"no answer within {READ_S:g} s"
            raise WriteUnconfirmed(f"{error}; reading it back: {cause}") from unread
        revision = 0 if found is None else found.revision
        # No other record is equal: each attempt has a token of its own.
        if found is not None and found.value == encode_app(known):
            return RecordedApp(known, revision)
        if revision != before.revision:
            raise Conflict(key, before.revision, revision)
        raise MetaError(f"{error}; it has not, as the record shows") from error

    async def save(self, before: RecordedApp, known: AppRecord) -> RecordedApp:
        """Replace exactly `before`; Conflict when another incarnation has changed the record."""
        key = APP_PREFIX + known.app
        revision = await self._store.write({key: encode_app(known)}, expect={key: before.revision})
        return RecordedApp(known, revision)

    async def forget(self, apps: Sequence[RecordedApp]) -> None:
        """Delete exactly these; Conflict when one of them has changed.

        Each is independent: after an error some may be gone already.
        """
        expected = {APP_PREFIX + it.known.app: it.revision for it in apps}
        for _, gone in split_write({}, list(expected)):
            await self._store.write({}, deletes=gone, expect={key: expected[key] for key in gone})


def encode_app(known: AppRecord) -> bytes:
    """The record of one app."""
    return encode_fields(
        {
            "app": known.app,
            "done": known.done and _done_fields(known.done),
            "attempt": known.attempt and _attempt_fields(known.attempt),
        }
    )


def decode_app(key: str, value: bytes) -> AppRecord:
    """The app's record; MetaError when it is damaged or of an unknown version."""

    def parse(fields: dict[str, Any]) -> AppRecord:
        app = fields["app"]
        done, attempt = fields["done"], fields["attempt"]
        return AppRecord(
            app,
            None if done is None else _done(done),
            None if attempt is None else _attempt(app, attempt),
        )

    return decode_fields(key, value, parse)


def _done_fields(done: CommittedBatch) -> Mapping[str, Any]:
    return {"batch": done.batch, "ticks": dict(done.ticks), "done_ms": done.done_ms}


def _done(fields: Mapping[str, Any]) -> CommittedBatch:
    ticks = {VChannelName(name): TimeTick(int(it)) for name, it in fields["ticks"].items()}
    return CommittedBatch(int(fields["batch"]), ticks, int(fields["done_ms"]))


def _attempt_fields(attempt: CommitAttempt) -> Mapping[str, Any]:
    refusal, txns = attempt.refusal, attempt.commit.txns
    # Each name once: there may be thousands of transactions.
    vchannels = list(dict.fromkeys([it.vchannel for it in txns]))
    index = {name: number for number, name in enumerate(vchannels)}
    cause = "" if refusal is None else refusal.cause[:CAUSE_LENGTH_MAX]
    return {
        "batch": attempt.commit.batch,
        "state": attempt.state.name,
        "vchannels": vchannels,
        "txns": [[index[it.vchannel], it.txn_id, it.part, it.attempt] for it in txns],
        "token": attempt.token,
        "refusal": None if refusal is None else [refusal.code.name, cause],
    }


def _attempt(app: str, fields: Mapping[str, Any]) -> CommitAttempt:
    """Votes are not stored: every transaction is asked again, and answers as before."""
    names = fields.get("vchannels")  # absent in records of an older release
    txns = tuple(
        StagedTxn(
            VChannelName(vchannel if names is None else names[vchannel]),
            TxnId(int(txn_id)),
            int(part),
            int(attempt),
        )
        for vchannel, txn_id, part, attempt in fields["txns"]
    )
    commit = BatchCommit(app, int(fields["batch"]), txns)
    refusal = fields["refusal"]
    return CommitAttempt(
        commit,
        CommitState[fields["state"]],
        frozenset(txns),
        None if refusal is None else Refusal(StreamingCode[refusal[0]], refusal[1]),
        token=int(fields["token"]),
    )
