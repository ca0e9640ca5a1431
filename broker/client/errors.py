"""Every error of the client. `retriable` says whether the same call may succeed later.

Refusals of the server have a type for each of Milvus's streaming codes.
"""

from collections.abc import Sequence
from typing import ClassVar

from broker.model.failure import StreamingCode


class TidemarkError(Exception):
    """The base of all errors. `retriable`: the same call may succeed later.

    `retry_s`: the server says that it will not before so many seconds; 0: it says nothing.
    """

    retriable: bool = False
    retry_s: float = 0.0


class ConnectionLost(TidemarkError):
    """The server cannot be reached, or went away before it answered; nothing was written."""

    retriable, unsent = True, False  # `unsent`: there was no connection to send anything on


class NodeUnreachable(ConnectionLost):
    """A node serves the channel, but this machine cannot connect to the address it was given.

    Raised within 2 s for an address that was never reached, as long as the server still names it. A
    node that was reached before is waited for instead, because it may be restarting.
    """

    def __init__(self, address: str, given_by: str, cause: str) -> None:
        super().__init__(
            f"cannot reach {address}: {cause}; {given_by} gave this address for a node: start that"
            " node with --advertise HOST[:PORT], an address that this machine can connect to"
        )
        self.address = address
        self.given_by = given_by
        self.cause = cause

    def __reduce__(self) -> tuple[type["NodeUnreachable"], tuple[str, str, str]]:
        return type(self), (self.address, self.given_by, self.cause)


class NotTrusted(TidemarkError):
    """A server's certificate is not trusted, or it speaks no TLS; the text names the check."""


class DeadlineExceeded(TidemarkError):
    """The deadline passed. An append was not written, and will not be."""

    retriable = True


class OutcomeUnknown(TidemarkError):
    """An append, commit or broadcast was sent but not answered: it may or may not take effect.

    Read the log to find out. Calling `append` again may write the message twice; a batch commit or
    a broadcast with an idempotency key may be repeated safely.
    """


class ClosedClient(TidemarkError):
    """The client, reader or watch was closed before or during the call."""


class ForkedClient(TidemarkError):
    """The process was forked after `connect`; connect again in the child process."""


class MessageTooLarge(TidemarkError):
    """A message or batch is larger than a server accepts; it was not sent. Split it."""


class BadTarget(TidemarkError):
    """A target, position, key or column is not valid; nothing was sent."""


class BadAddress(TidemarkError, ValueError):
    """The address of a server is not HOST:PORT."""


class BadTlsFiles(TidemarkError, ValueError):
    """A certificate, key or list of authorities that cannot be used."""


class BadToken(TidemarkError, ValueError):
    """Text that cannot be a token; nothing was sent."""


class BadTransaction(TidemarkError):
    """A transaction or stage was used before its begin, after its end, or with appends pending."""


class ProtocolBroken(TidemarkError):
    """The server violated the protocol, or does not offer the call: not a Tidemark broker?"""


class NotOffered(ProtocolBroken):
    """The server does not know the call: an earlier release, or not a Tidemark broker."""


class OutOfRange(TidemarkError):
    """The requested ids are not all in the log, which holds [first_id, next_id) of `channel`.

    `requested_id` below `first_id`: retention removed messages that the reader has not seen; then
    start at "all" or at a time to read what is left. `after_tick`: the position it started from, if
    that was a tick; ids of removed messages are not known then. `why`: of a reader of a cursor that
    retention has passed, the limit that the cursor exceeded.
    """

    def __init__(
        self,
        channel: str,
        requested_id: int,
        first_id: int,
        next_id: int,
        *,
        after_tick: int = -1,
        why: str = "",
    ) -> None:
        held = f"which holds [{first_id}, {next_id})"
        if after_tick >= 0:
            text = (
                f"retention removed messages behind tick {after_tick} from the log, {held};"
                ' start at "all" or at a time to read what is left'
            )
        else:
            lost = f"; [{requested_id}, {first_id}) was removed" if requested_id < first_id else ""
            text = f"id {requested_id} is outside of the log, {held}{lost}"
        super().__init__(f"{channel}: {text}{f'; {why}' if why else ''}")
        self.after_tick = after_tick
        self.why = why
        self.channel = channel
        self.requested_id = requested_id
        self.first_id = first_id
        self.next_id = next_id

    def because(self, why: str) -> "OutOfRange":
        """The same error with its cause."""
        ids = (self.requested_id, self.first_id, self.next_id)
        return OutOfRange(self.channel, *ids, after_tick=self.after_tick, why=why)

    def __reduce__(self) -> tuple[object, tuple[str, int, int, int, int, str]]:
        ids = (self.requested_id, self.first_id, self.next_id)
        return _out_of_range, (self.channel, *ids, self.after_tick, self.why)


def _out_of_range(
    channel: str, requested_id: int, first_id: int, next_id: int, tick: int, why: str
) -> OutOfRange:
    """An OutOfRange from its pickled form, which has no names."""
    return OutOfRange(channel, requested_id, first_id, next_id, after_tick=tick, why=why)


class BadCommit(TidemarkError):
    """What was to be committed is not of this cursor's reader; nothing was committed.

    Or too many batches were committed while an earlier one was not: commit that one first.
    """


class AppendsFailed(TidemarkError):
    """Some messages of one call were not acknowledged; `results` has each result or error in order.

    `retriable`: every failure is, so the failed messages may be appended again.
    """

    def __init__(self, results: Sequence[object]) -> None:
        self.results = results
        failures = [it for it in results if isinstance(it, TidemarkError)]
        assert failures, "nothing failed"
        self.retriable = all(it.retriable for it in failures)
        super().__init__(f"{len(failures)} of {len(results)} messages failed; first: {failures[0]}")

    def __reduce__(self) -> tuple[type["AppendsFailed"], tuple[Sequence[object]]]:
        return type(self), (self.results,)


class ServerRefusal(TidemarkError):
    """The server refused the request, with a streaming `code` and a `cause` in words."""

    expected: ClassVar[StreamingCode] = StreamingCode.UNKNOWN

    def __init__(self, cause: str, code: StreamingCode | None = None) -> None:
        self.code = self.expected if code is None else code
        self.cause = cause
        super().__init__(f"{cause or self.code.name.lower().replace('_', ' ')} ({self.code.name})")

    def __reduce__(self) -> tuple[type["ServerRefusal"], tuple[str, StreamingCode]]:
        # By default the whole text would be passed as the cause when it is unpickled.
        return type(self), (self.cause, self.code)


class ChannelNotExist(ServerRefusal):
    """The node does not serve the pchannel; another one may serve it by now."""

    expected = StreamingCode.CHANNEL_NOT_EXIST
    retriable = True


class ChannelFenced(ServerRefusal):
    """A newer owner took over the pchannel; or another peer took over the place in a barrier."""

    expected = StreamingCode.CHANNEL_FENCED
    retriable = True


class ServerStopping(ServerRefusal):
    """The node, or the pchannel's log on it, is closing."""

    expected = StreamingCode.ON_SHUTDOWN
    retriable = True


class NotLeader(ServerStopping):
    """The coordinator does not lead, so it did nothing. `leader`: who does; "" if none is known."""

    leader = ""


class InvalidRequestSequence(ServerRefusal):
    """The stream's protocol was violated: a bug in the client or the server."""

    expected = StreamingCode.INVALID_REQUEST_SEQ


class TermMismatch(ServerRefusal):
    """The pchannel has another term than the client knew: it has a newer owner."""

    expected = StreamingCode.UNMATCHED_CHANNEL_TERM
    retriable = True


class OperationIgnored(ServerRefusal):
    """Nothing is left to do, or the request was meant for another cluster or server."""

    expected = StreamingCode.IGNORED_OPERATION


class ServerFailed(ServerRefusal):
    """An internal error of the server, or a state that will pass."""

    expected = StreamingCode.INNER
    retriable = True


class InvalidArgument(ServerRefusal):
    """The request can never succeed as it is."""

    expected = StreamingCode.INVALID_ARGUMENT


class NotLocal(ServerRefusal):
    """The server the client is connected to does not own the vchannel."""

    expected = StreamingCode.CHANNEL_NOT_EXIST


class NoSuchCollection(ServerRefusal):
    """No collection has this name."""

    expected = StreamingCode.CHANNEL_NOT_EXIST


class AlreadyExists(InvalidArgument):
    """A collection of this name exists already; with `exist_ok`, one of another definition."""


class NoSuchVChannel(ServerRefusal):
    """No collection has this channel, and no message has named it."""

    expected = StreamingCode.CHANNEL_NOT_EXIST


class OutdatedTarget(ServerRefusal):
    """The collection was dropped since its name was looked up; nothing was stored.

    The next call looks the name up again, and finds a collection that was created anew.
    """

    expected = StreamingCode.INVALID_ARGUMENT
    retriable = True


class NoSuchCursor(ServerRefusal):
    """No cursor has this name."""

    expected = StreamingCode.CHANNEL_NOT_EXIST


class UnknownMember(ServerRefusal):
    """The master knows no tenant, proxy or write node of this id; or a channel is not known."""

    expected = StreamingCode.CHANNEL_NOT_EXIST


class UnknownDefinition(ServerRefusal):
    """There is no database, collection, partition or alias of this name; `cause` says which."""

    expected = StreamingCode.CHANNEL_NOT_EXIST


class CursorMovedBack(ServerRefusal):
    """The cursor is already beyond this tick, and only `reset` sets it back."""

    expected = StreamingCode.INVALID_REQUEST_SEQ


class CursorWasReset(ServerRefusal):
    """The cursor was reset, or dropped and made again, after this reader was started from it.

    Nothing was committed. Start another reader from the cursor.
    """

    expected = StreamingCode.INVALID_REQUEST_SEQ


class NoSuchGroup(ServerRefusal):
    """There is no consumer group of this name on the channel."""

    expected = StreamingCode.UNRECOVERABLE


class LeaseLost(ServerRefusal):
    """The lease is over: its messages are delivered again, perhaps to another member."""

    expected = StreamingCode.INVALID_REQUEST_SEQ


class TransactionExpired(ServerRefusal):
    """The transaction expired or was rolled back; nothing of it will be read. Begin a new one."""

    expected = StreamingCode.TRANSACTION_EXPIRED


class InvalidTransactionState(ServerRefusal):
    """The transaction has ended, or is being committed, and does not allow this any more."""

    expected = StreamingCode.INVALID_TRANSACTION_STATE


class Unrecoverable(ServerRefusal):
    """The request cannot ever succeed: too large, not supported, or the data is lost."""

    expected = StreamingCode.UNRECOVERABLE


class ResourceAcquired(ServerRefusal):
    """Another request holds what this one needs."""

    expected = StreamingCode.RESOURCE_ACQUIRED
    retriable = True


class ReplicateViolation(ServerRefusal):
    """A replica accepts this only from the cluster it replicates."""

    expected = StreamingCode.REPLICATE_VIOLATION


class WalNameMismatch(ServerRefusal):
    """The message id belongs to another kind of log."""

    expected = StreamingCode.WAL_NAME_MISMATCH


class SchemaVersionMismatch(ServerRefusal):
    """The rows do not match the schema of their collection; the error names each difference."""

    expected = StreamingCode.SCHEMA_VERSION_MISMATCH


class RateLimited(ServerRefusal):
    """The server takes no more now: a limit is reached, or its disk or memory is short."""

    expected = StreamingCode.RATE_LIMIT_REJECTED
    retriable = True


class PermissionDenied(ServerRefusal):
    """The caller lacks a right, which the text names; it does not tell whether the name exists."""

    expected = StreamingCode.PERMISSION_DENIED


class NotAuthenticated(ServerRefusal):
    """No token, or it has expired or was revoked: `connect(..., token=...)` with a good one."""

    expected = StreamingCode.NOT_AUTHENTICATED


class UnknownRefusal(ServerRefusal):
    """The server gave no code, or one that this client does not know."""

    expected = StreamingCode.UNKNOWN
    retriable = True
