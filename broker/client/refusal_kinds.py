"""Which error of the client stands for which refusal of a server."""

from broker.client.errors import (
    AlreadyExists,
    CursorMovedBack,
    CursorWasReset,
    LeaseLost,
    NoSuchCollection,
    NoSuchCursor,
    NoSuchGroup,
    NoSuchVChannel,
    NotAuthenticated,
    NotLocal,
    OutdatedTarget,
    PermissionDenied,
    ServerRefusal,
    UnknownDefinition,
    UnknownMember,
    UnknownRefusal,
)
from broker.model.failure import StreamingCode

_BY_MEANING = (
    AlreadyExists, NoSuchCollection, NoSuchVChannel, OutdatedTarget, NotLocal, NoSuchCursor,
    UnknownMember, UnknownDefinition, CursorMovedBack, CursorWasReset, NoSuchGroup, LeaseLost,
)  # fmt: skip
"""Raised by calls that know what the code means for them; the code alone does not tell."""

_BY_CODE: dict[StreamingCode, type[ServerRefusal]] = {
    kind.expected: kind for kind in ServerRefusal.__subclasses__() if kind not in _BY_MEANING
}


_WORDS = (("permission denied: ", PermissionDenied), ("not authenticated: ", NotAuthenticated))
"""How causes begin where Milvus's protocol has no code, and UNRECOVERABLE is sent."""


def refusal(code: int, cause: str) -> ServerRefusal:
    """The exception for a streaming code; UnknownRefusal for a code that is not known."""
    if code == StreamingCode.UNRECOVERABLE:
        for words, kind in _WORDS:
            if cause.startswith(words):
                return kind(cause)
    try:
        known = StreamingCode(code)
    except ValueError:
        return UnknownRefusal(f"code {code}: {cause}")
    return _BY_CODE.get(known, UnknownRefusal)(cause, known)
