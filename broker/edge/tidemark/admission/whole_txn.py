"""The stored forms of begin and commit of a transaction that came in one batch.

Milvus's consumers get them with the bodies, as if a client had appended them one by one.
"""

from functools import lru_cache

from broker.model.batch import WholeTxn
from broker.model.message import MessageType
from broker.model.txn import TxnContext
from schemas.encoding.entries import write_entry
from schemas.properties import txn_context
from schemas.properties.keys import TXN
from schemas.scan import STORED_PROPERTY
from schemas.stored import stored_form

VERSION = 2
"""Of Milvus's messages of transactions."""


@lru_cache(maxsize=16_384)
def whole_txn(vchannel: str) -> WholeTxn:
    """What the log stores before and behind the bodies of a transaction on this vchannel."""
    header = txn_context.begin_header(0)  # with the server's default keepalive
    begin = stored_form(MessageType.BEGIN_TXN, VERSION, vchannel, header)
    commit = stored_form(MessageType.COMMIT_TXN, VERSION, vchannel, b"")

    def commit_of(context: TxnContext) -> bytes:
        named = TXN.encode(txn_context.TxnContext(context.id, context.keepalive_ms))
        return commit + write_entry(STORED_PROPERTY, TXN.key, named)

    return WholeTxn(begin, commit_of)
