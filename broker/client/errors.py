"""Every way a call of the client can fail, as a type that says whether to try again.

It owns the mapping from Milvus's streaming codes to exception types. It never decides to retry:
Next: broker/client/net/retry_rules.py
"""

from collections.abc import Sequence
from typing import ClassVar

from broker.model.failure import StreamingCode


class TidemarkError(Exception):
    """Base of all of them. `retriable`: the same call may succeed when made again."""

    retriable: bool = False


class ConnectionLost(TidemarkError):
    """The server could not be reached, or went away before it answered. Nothing was written."""

    retriable = True


class DeadlineExceeded(TidemarkError):
    """Time ran out. For an append: it was not written and will not be."""

    retriable = True


class OutcomeUnknown(TidemarkError):
    """An append was sent, and no answer came: it may have been written.

    Read the log to find out; calling append again may write the message twice.
    """


class ClosedClient(TidemarkError):
    """The client was closed before or during the call."""


class ForkedClient(TidemarkError):
    """The process was forked after `connect`; a connection cannot be shared by two processes."""


class MessageTooLarge(TidemarkError):
    """Larger than the client may send; it was not sent."""


class BadTarget(TidemarkError):
    """A name or a start position that cannot mean anything."""


class BadAddress(TidemarkError, ValueError):
    """What should name a server is not HOST:PORT."""


class BadTransaction(TidemarkError):
    """A transaction was used before its begin, after its end, or ended with appends under way."""


class ProtocolBroken(TidemarkError):
    """The server sent what the protocol does not allow."""


class OutOfRange(TidemarkError):
    """The ids asked for are not all there: the log of `channel` holds [first_id, next_id).

    `requested_id` below `first_id` means that retention removed messages the reader has not seen.
    """

    def __init__(self, channel: str, requested_id: int, first_id: int, next_id: int) -> None:
        lost = f"; [{requested_id}, {first_id}) was removed" if requested_id < first_id else ""
        super().__init__(
            f"{channel}: id {requested_id} is outside of the log, "
            f"which holds [{first_id}, {next_id}){lost}"
        )
        self.channel = channel
        self.requested_id = requested_id
        self.first_id = first_id
        self.next_id = next_id


class AppendsFailed(TidemarkError):
    """Some messages of one `append_messages` were not acknowledged.

    `results` has, in the order of the messages, where each landed or why it did not. `retriable`:
    every failure is, so the failed ones may be appended again.
    """

    def __init__(self, results: Sequence[object]) -> None:
        self.results = results
        failures = [it for it in results if isinstance(it, TidemarkError)]
        assert failures, "nothing failed"
        self.retriable = all(it.retriable for it in failures)
        super().__init__(f"{len(failures)} of {len(results)} messages failed; first: {failures[0]}")


class ServerRefusal(TidemarkError):
    """The server answered no. `code` is the streaming code, `cause` the server's own words."""

    expected: ClassVar[StreamingCode] = StreamingCode.UNKNOWN

    def __init__(self, cause: str, code: StreamingCode | None = None) -> None:
        self.code = self.expected if code is None else code
        self.cause = cause
        super().__init__(f"{self.code.name}: {cause}" if cause else self.code.name)

    def __reduce__(self) -> tuple[type["ServerRefusal"], tuple[str, StreamingCode]]:
        return type(self), (self.cause, self.code)


class ChannelNotExist(ServerRefusal):
    """The node does not serve the pchannel; perhaps another one does by now."""

    expected = StreamingCode.CHANNEL_NOT_EXIST
    retriable = True


class ChannelFenced(ServerRefusal):
    """A newer owner took the pchannel over."""

    expected = StreamingCode.CHANNEL_FENCED
    retriable = True


class ServerStopping(ServerRefusal):
    """The node or the log of the pchannel is closing."""

    expected = StreamingCode.ON_SHUTDOWN
    retriable = True


class InvalidRequestSequence(ServerRefusal):
    """Messages of a stream came in an order the server does not accept."""

    expected = StreamingCode.INVALID_REQUEST_SEQ


class TermMismatch(ServerRefusal):
    """The pchannel is open at another term than the client knew."""

    expected = StreamingCode.UNMATCHED_CHANNEL_TERM
    retriable = True


class OperationIgnored(ServerRefusal):
    """The server found nothing left to do, or is not the one addressed (cluster, server id)."""

    expected = StreamingCode.IGNORED_OPERATION


class ServerFailed(ServerRefusal):
    """Something went wrong inside the server."""

    expected = StreamingCode.INNER
    retriable = True


class InvalidArgument(ServerRefusal):
    """The request can never succeed as it is."""

    expected = StreamingCode.INVALID_ARGUMENT


class NotLocal(ServerRefusal):
    """The server that was asked does not own the vchannel; whoever does may be asked."""

    expected = StreamingCode.CHANNEL_NOT_EXIST


class NoSuchCollection(ServerRefusal):
    """No collection has this name."""

    expected = StreamingCode.CHANNEL_NOT_EXIST


class NoSuchCursor(ServerRefusal):
    """No cursor has this name."""

    expected = StreamingCode.CHANNEL_NOT_EXIST


class CursorMovedBack(ServerRefusal):
    """A cursor that is further already was to go to a smaller tick; it stays where it is."""

    expected = StreamingCode.INVALID_REQUEST_SEQ


class TransactionExpired(ServerRefusal):
    """The transaction is gone; begin a new one."""

    expected = StreamingCode.TRANSACTION_EXPIRED


class InvalidTransactionState(ServerRefusal):
    """The transaction is not open for this any more."""

    expected = StreamingCode.INVALID_TRANSACTION_STATE


class Unrecoverable(ServerRefusal):
    """The server will never do this: too large, not supported, or the data is gone."""

    expected = StreamingCode.UNRECOVERABLE


class ResourceAcquired(ServerRefusal):
    """Somebody else holds what the request needs."""

    expected = StreamingCode.RESOURCE_ACQUIRED
    retriable = True


class ReplicateViolation(ServerRefusal):
    """A replicated cluster takes this from its source only."""

    expected = StreamingCode.REPLICATE_VIOLATION


class WalNameMismatch(ServerRefusal):
    """The message id belongs to another kind of log."""

    expected = StreamingCode.WAL_NAME_MISMATCH


class SchemaVersionMismatch(ServerRefusal):
    """The message was made for an older schema of its collection."""

    expected = StreamingCode.SCHEMA_VERSION_MISMATCH


class UnknownRefusal(ServerRefusal):
    """The server gave no code, or one this client does not know."""

    expected = StreamingCode.UNKNOWN
    retriable = True


_BY_MEANING = (NoSuchCollection, NotLocal, NoSuchCursor, CursorMovedBack)
"""Made where it is known what the code means there."""

_BY_CODE: dict[StreamingCode, type[ServerRefusal]] = {
    kind.expected: kind for kind in ServerRefusal.__subclasses__() if kind not in _BY_MEANING
}


def refusal(code: int, cause: str) -> ServerRefusal:
    """The exception for a streaming code; a code that is not known counts as UNKNOWN."""
    try:
        known = StreamingCode(code)
    except ValueError:
        return UnknownRefusal(f"code {code}: {cause}")
    return _BY_CODE.get(known, UnknownRefusal)(cause, known)
