"""Encode and decode what messages say of staged transactions: the stage of a begin, and commands.

The commands of two-phase commit are stored as messages: prepare, commit and abort.
"""

from typing import Final

from broker.model.message import PREPARE_TXN, MessageType, NewMessage
from broker.model.stage import BatchCommit, StagedTxn, StageName
from broker.model.txn import TxnContext
from schemas.encoding.entries import write_entry
from schemas.properties.batch_mark import write_batch_mark
from schemas.properties.keys import BATCH, STAGE, STAGE_RUN, TXN, BadProperty
from schemas.properties.txn_context import TxnContext as StoredTxn
from schemas.stored import stored_form
from schemas.wire import stored_properties

# Milvus writes transaction messages in version 2 of its message format.
_VERSION: Final = 2
_STORED_PROPERTY: Final = b"\x1a"


def stage_of(begin: bytes) -> StageName | None:
    """The stage of a stored begin; None when it has none. Raises BadProperty, Malformed."""
    properties = stored_properties(begin)
    key = STAGE.read(properties)
    if key is None:
        return None
    run = STAGE_RUN.read(properties) or 0
    name = StageName(key.app, key.batch, key.part, key.attempt, run)
    if name.problem:
        raise BadProperty(STAGE.key, STAGE.encode(key), name.problem)
    return name


def prepare_message(commit: BatchCommit, txn: StagedTxn) -> NewMessage:
    """Prepare: the transaction survives its keepalive, and waits for commit or abort."""
    return _command(commit, txn, PREPARE_TXN, b"")


def batch_mark_of(commit: BatchCommit) -> str:
    """The property that all commits of a batch have; made once for all of them."""
    return write_batch_mark(commit.app, commit.batch, [txn.vchannel for txn in commit.txns])


def commit_message(commit: BatchCommit, txn: StagedTxn, mark: str) -> NewMessage:
    """Commit, as a client would send it, with the mark of its batch."""
    body = _end(MessageType.COMMIT_TXN, txn) + write_entry(_STORED_PROPERTY, BATCH.key, mark)
    return _command(commit, txn, MessageType.COMMIT_TXN, body)


def abort_message(commit: BatchCommit, txn: StagedTxn) -> NewMessage:
    """Abort, whether or not the transaction is prepared."""
    return _command(commit, txn, MessageType.ROLLBACK_TXN, _end(MessageType.ROLLBACK_TXN, txn))


def abort_unprepared_message(txn: StagedTxn) -> NewMessage:
    """Abort unless the transaction is prepared: the rollback that its own client may send."""
    body = _end(MessageType.ROLLBACK_TXN, txn)
    context = TxnContext(txn.txn_id, 0)
    return NewMessage(txn.vchannel, MessageType.ROLLBACK_TXN, body, len(body), txn=context)


def _command(commit: BatchCommit, txn: StagedTxn, kind: int, body: bytes) -> NewMessage:
    context = TxnContext(txn.txn_id, 0)
    stage = commit.stage(txn)
    return NewMessage(txn.vchannel, kind, body, len(body), txn=context, stage=stage)


def _end(kind: MessageType, txn: StagedTxn) -> bytes:
    context = TXN.encode(StoredTxn(txn.txn_id, 0))
    named = write_entry(_STORED_PROPERTY, TXN.key, context)
    return stored_form(kind, _VERSION, txn.vchannel, b"") + named
