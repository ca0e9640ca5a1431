"""What the master says of a change beside Milvus's message, in a property of ours."""

import json
from collections.abc import Mapping
from typing import Any, Final

from broker.model.message import ANNOUNCED
from schemas.scan import stored_properties

ARROW: Final = "arrow"
"""The Arrow schema of a collection that is created or altered."""
RETENTION: Final = "retention"
"""The limits of a collection that is created or altered: milliseconds, and bytes; 0: no limit."""
COMPACTION: Final = "compaction"
"""How a collection is compacted: lag and time of tombstones in milliseconds; empty: not."""
OF_ROWS: Final = "rows"
"""A partition comes or goes in a collection with an Arrow schema."""

_KEY: Final = ANNOUNCED.encode()


def is_announced(stored: bytes) -> bool:
    """Whether the master has broadcast this message. ValueError when it is malformed."""
    # A search for the key in the bytes tells most messages apart without decoding them.
    return _KEY in stored and ANNOUNCED in stored_properties(stored)


def said_beside(stored: bytes) -> Mapping[str, Any] | None:
    """What the master says beside the message; None: it is not the master's. ValueError."""
    text = stored_properties(stored).get(ANNOUNCED) if _KEY in stored else None
    return None if text is None else read_said(text)


def read_said(text: str) -> Mapping[str, Any]:
    """The property of ours. ValueError when it is malformed."""
    try:
        said = json.loads(text)
    except RecursionError:
        # Any client can send the property: what cannot be read must not end an Appender.
        raise ValueError(f"property {ANNOUNCED} is nested too deep: {text[:80]!r}") from None
    if not isinstance(said, dict):
        raise ValueError(f"property {ANNOUNCED} is no JSON object: {text[:80]!r}")
    return said


def are_rows(said: Mapping[str, Any]) -> bool:
    """Whether the collection of the change has an Arrow schema."""
    return ARROW in said or said.get(OF_ROWS) is True
