"""Staged transactions as messages say so: which stage a begin is of, and the last word on one.

Owns the forms in which they are stored, and decides nothing.
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

_VERSION: Final = 2
_STORED_PROPERTY: Final = b"\x1a"


def stage_of(begin: bytes) -> StageName | None:
    """The stage of a stored begin; None when it is of none. Raises BadProperty, Malformed."""
    properties = stored_properties(begin)
    key = STAGE.read(properties)
    if key is None:
        return None
    run = STAGE_RUN.read(properties) or 0
    name = StageName(key.app, key.batch, key.part, key.attempt, run)
    if name.problem:
        raise BadProperty(STAGE.key, STAGE.encode(key), name.problem)
    return name


def prepare(commit: BatchCommit, txn: StagedTxn) -> NewMessage:
    """Let it wait for the next word, whatever happens."""
    return _word(commit, txn, PREPARE_TXN, b"")


def mark_of(commit: BatchCommit) -> str:
    """What all commits of the batch say of it; made once for all of them."""
    return write_batch_mark(commit.app, commit.batch, [txn.vchannel for txn in commit.txns])


def make_visible(commit: BatchCommit, txn: StagedTxn, mark: str) -> NewMessage:
    """Its commit, as a client would have sent it, with the mark of its batch."""
    body = _end(MessageType.COMMIT_TXN, txn) + write_entry(_STORED_PROPERTY, BATCH.key, mark)
    return _word(commit, txn, MessageType.COMMIT_TXN, body)


def roll_back(commit: BatchCommit, txn: StagedTxn) -> NewMessage:
    """Its rollback, whether it was prepared or not."""
    return _word(commit, txn, MessageType.ROLLBACK_TXN, _end(MessageType.ROLLBACK_TXN, txn))


def give_up(txn: StagedTxn) -> NewMessage:
    """Its rollback, unless a commit has taken hold of it: what its own client may say."""
    body = _end(MessageType.ROLLBACK_TXN, txn)
    context = TxnContext(txn.txn_id, 0)
    return NewMessage(txn.vchannel, MessageType.ROLLBACK_TXN, body, len(body), txn=context)


def _word(commit: BatchCommit, txn: StagedTxn, kind: int, body: bytes) -> NewMessage:
    context = TxnContext(txn.txn_id, 0)
    stage = commit.stage(txn)
    return NewMessage(txn.vchannel, kind, body, len(body), txn=context, stage=stage)


def _end(kind: MessageType, txn: StagedTxn) -> bytes:
    context = TXN.encode(StoredTxn(txn.txn_id, 0))
    named = write_entry(_STORED_PROPERTY, TXN.key, context)
    return stored_form(kind, _VERSION, txn.vchannel, b"") + named
