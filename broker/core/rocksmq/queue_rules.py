"""Names and amounts that the embedded queue takes."""

from collections.abc import Sequence

from broker.model.rocksmq.queue_refusal import QueueFault, QueueRefusal

NAME_BYTES_MAX = 255
"""Of a channel or a group, as UTF-8; what a file name may have on most systems."""

MESSAGES_MAX = 65_536
"""Of one produce and of one consume, and ids of one allocation: they fit into a millisecond."""

BATCH_BYTES_MAX = 64 * 1024 * 1024
"""Payload of one produce. One consume stops before it would have more, unless for one message."""

ID_END_MAX = 2**63
"""Ids are signed 64-bit numbers; this is one past the last one."""

EARLIEST = -1
"""The position of a group that has consumed nothing: it reads from the first message left."""


def name_fault(kind: str, name: str) -> QueueRefusal | None:
    """What is wrong with the name of a channel or a group (`kind`); None if nothing is.

    '/' separates the parts of a key, so a name with it could stand for another one; NUL ends a name
    for many tools.
    """
    if not name:
        return _bad_name(f"the name of a {kind} is empty")
    for character, told in (("/", "'/', which separates the parts of a key"), ("\0", "NUL")):
        if character in name:
            return _bad_name(f"{kind} name {name!r} has {told}: choose a name without it")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return _bad_name(f"{kind} name {name!r} is no Unicode text (it has a lone surrogate)")
    if size > NAME_BYTES_MAX:
        return _bad_name(
            f"{kind} name {name[:40]!r}… has {size} bytes; at most {NAME_BYTES_MAX} are allowed"
        )
    return None


def batch_fault(payloads: Sequence[object]) -> QueueRefusal | None:
    """What is wrong with the amount of one produce; None if nothing is."""
    if len(payloads) > MESSAGES_MAX:
        return _bad_argument(
            f"{len(payloads)} messages in one produce; at most {MESSAGES_MAX}: split it"
        )
    size = 0
    for place, payload in enumerate(payloads):
        if not isinstance(payload, bytes):
            kind = type(payload).__name__
            return _bad_argument(f"message {place} of the produce is a {kind}; it must be bytes")
        size += len(payload)
    if size > BATCH_BYTES_MAX:
        return _bad_argument(
            f"one produce has {size} bytes of payload; at most {BATCH_BYTES_MAX}: split it"
        )
    return None


def take_fault(count: int) -> QueueRefusal | None:
    """What is wrong with the number of messages to consume; None if nothing is."""
    if not 0 <= count <= MESSAGES_MAX:
        return _bad_argument(f"{count} messages to consume; it must be 0 to {MESSAGES_MAX}")
    return None


def alloc_fault(count: int) -> QueueRefusal | None:
    """What is wrong with the number of ids to allocate; None if nothing is."""
    if not 1 <= count <= MESSAGES_MAX:
        return _bad_argument(f"{count} ids to allocate; it must be 1 to {MESSAGES_MAX}")
    return None


def range_fault(count: int, start: int, end: int) -> QueueRefusal | None:
    """What is wrong with what an allocator gave for `count` ids; None if nothing is."""
    if start > 0 and end - start == count and end <= ID_END_MAX:
        return None
    return _bad_argument(
        f"the IDAllocator gave [{start}, {end}) for {count} ids; it must give so many, contiguous,"
        " above 0 and in 63 bits"
    )


def _bad_name(cause: str) -> QueueRefusal:
    return QueueRefusal(QueueFault.BAD_NAME, cause)


def _bad_argument(cause: str) -> QueueRefusal:
    return QueueRefusal(QueueFault.BAD_ARGUMENT, cause)
