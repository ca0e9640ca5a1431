"""What the client does with each code that the server may answer.

As Milvus's resumable producer, with two differences: an invalid request, or one made for an
outdated schema, fails at once (newer Milvus clients do the same), and a retry on a healthy stream
waits for a back-off first.
"""

from enum import Enum

from broker.model.failure import StreamingCode


class RetryVerdict(Enum):
    """What the client does with a refused append."""

    SURFACE = "the caller gets the error"
    AGAIN = "sent again on the same stream, after a backoff"
    REOPEN = "sent again on a new stream"
    REROUTE = "reported as sent to the wrong node, then sent to the node that serves the channel"


_APPEND: dict[StreamingCode, RetryVerdict] = {
    StreamingCode.CHANNEL_NOT_EXIST: RetryVerdict.REROUTE,
    StreamingCode.CHANNEL_FENCED: RetryVerdict.REOPEN,
    StreamingCode.ON_SHUTDOWN: RetryVerdict.REOPEN,
    StreamingCode.INVALID_REQUEST_SEQ: RetryVerdict.REOPEN,
    StreamingCode.UNMATCHED_CHANNEL_TERM: RetryVerdict.REROUTE,
    StreamingCode.IGNORED_OPERATION: RetryVerdict.SURFACE,
    # The server's state may pass, and nothing was stored: see `may_be_written`.
    StreamingCode.INNER: RetryVerdict.AGAIN,
    StreamingCode.INVALID_ARGUMENT: RetryVerdict.SURFACE,
    StreamingCode.TRANSACTION_EXPIRED: RetryVerdict.SURFACE,
    StreamingCode.INVALID_TRANSACTION_STATE: RetryVerdict.SURFACE,
    StreamingCode.UNRECOVERABLE: RetryVerdict.SURFACE,
    StreamingCode.RESOURCE_ACQUIRED: RetryVerdict.AGAIN,
    StreamingCode.REPLICATE_VIOLATION: RetryVerdict.SURFACE,
    StreamingCode.WAL_NAME_MISMATCH: RetryVerdict.AGAIN,
    StreamingCode.SCHEMA_VERSION_MISMATCH: RetryVerdict.SURFACE,
    # Not stored; the server says when to come again, if it knows.
    StreamingCode.RATE_LIMIT_REJECTED: RetryVerdict.AGAIN,
    StreamingCode.UNKNOWN: RetryVerdict.AGAIN,
    StreamingCode.PERMISSION_DENIED: RetryVerdict.SURFACE,
    StreamingCode.NOT_AUTHENTICATED: RetryVerdict.SURFACE,
}

_WRONG_NODE = frozenset({StreamingCode.CHANNEL_NOT_EXIST, StreamingCode.UNMATCHED_CHANNEL_TERM})

# A writer may be fenced, or die, between its write and the answer.
_MAYBE_WRITTEN = frozenset({StreamingCode.CHANNEL_FENCED, StreamingCode.UNKNOWN})

_WITHOUT_RIGHT = frozenset({StreamingCode.PERMISSION_DENIED, StreamingCode.NOT_AUTHENTICATED})

_FINAL_FOR_READERS = frozenset(
    {
        *_WITHOUT_RIGHT,
        StreamingCode.INVALID_ARGUMENT,
        StreamingCode.UNRECOVERABLE,
        StreamingCode.WAL_NAME_MISMATCH,
        StreamingCode.REPLICATE_VIOLATION,
    }
)


def append_verdict(code: StreamingCode) -> RetryVerdict:
    """The verdict for one append that was refused on a healthy stream."""
    return _APPEND.get(code, RetryVerdict.AGAIN)


def may_be_written(code: StreamingCode) -> bool:
    """Whether an append refused like this may be in the log: its writer was fenced or failed.

    Every other code means that the append was not stored and never will be, so repeating it is
    safe.
    """
    return code in _MAYBE_WRITTEN


def is_wrong_node(code: StreamingCode) -> bool:
    """Whether the client's assignment is outdated: report it, wait for a newer one."""
    return code in _WRONG_NODE


def ends_reader(code: StreamingCode) -> bool:
    """Whether opening the same consumer again would be refused again."""
    return code in _FINAL_FOR_READERS


def lacks_right(code: StreamingCode) -> bool:
    """Whether only an administrator of the server, or another token, changes the answer."""
    return code in _WITHOUT_RIGHT
