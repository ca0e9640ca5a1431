"""Append the coordinator's own messages at the nodes that serve their pchannels.

Messages are grouped by node and split into calls. A failed append is reported, not retried.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

import anyio

from broker.core.naming import pchannel_of
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import PChannelName
from broker.model.message import Appended, NewMessage
from broker.ports.nodes import NodeControl

PART_BYTES_MAX: Final = 4 * 1024 * 1024
"""A node takes frames of twice its largest message, so one more message still fits."""
PART_MESSAGES_MAX: Final = 4096

Owners = Callable[[], Awaitable[Mapping[PChannelName, NodeControl]]]
"""The node that serves each pchannel now; pchannels that no node serves are left out."""


async def append_at_owners(
    owners: Owners, messages: Sequence[NewMessage]
) -> list[Appended | Refusal]:
    """Append each message to the pchannel of its vchannel, concurrently; outcomes in order.

    A refusal is the Appender's, except CHANNEL_NOT_EXIST: no node serves the pchannel, and UNKNOWN:
    the message may or may not be stored.
    """
    places: dict[PChannelName, list[int]] = defaultdict(list)
    for index, message in enumerate(messages):
        places[pchannel_of(message.vchannel)].append(index)
    found = await owners()
    outcomes: dict[int, Appended | Refusal] = {}

    async def on(pchannel: PChannelName, indexes: list[int]) -> None:
        mine = [messages[index] for index in indexes]
        outcomes.update(
            zip(indexes, await _append_at(found.get(pchannel), pchannel, mine), strict=True)
        )

    if len(places) == 1:  # most changes of definitions: the control channel alone
        await on(*next(iter(places.items())))
    else:
        async with anyio.create_task_group() as tasks:
            for pchannel, indexes in places.items():
                tasks.start_soon(on, pchannel, indexes)
    return [outcomes[index] for index in range(len(messages))]


async def _append_at(
    node: NodeControl | None, pchannel: PChannelName, messages: Sequence[NewMessage]
) -> Sequence[Appended | Refusal]:
    if node is None:
        cause = f"{pchannel}: no node serves it now; try again"
        return [Refusal(StreamingCode.CHANNEL_NOT_EXIST, cause)] * len(messages)
    outcomes: list[Appended | Refusal] = []
    # In turn, not at once: parts of one pchannel keep the order of the messages.
    for part in _parts(messages):
        outcomes += await _append_part(node, pchannel, part)
    return outcomes


async def _append_part(
    node: NodeControl, pchannel: PChannelName, part: Sequence[NewMessage]
) -> Sequence[Appended | Refusal]:
    try:
        outcomes = await node.append(pchannel, part)
    except Refused as error:
        # The call failed as a whole (a timeout, a read-only channel): no message has a verdict.
        cause = f"{pchannel}: {error.refusal.code.name} {error.refusal.cause}"
        return [Refusal(StreamingCode.UNKNOWN, cause)] * len(part)
    if len(outcomes) != len(part):
        cause = f"{pchannel}: the node gave {len(outcomes)} outcomes for {len(part)} messages"
        return [Refusal(StreamingCode.UNKNOWN, cause)] * len(part)
    return outcomes


def _parts(messages: Sequence[NewMessage]) -> Iterator[Sequence[NewMessage]]:
    """Split into as many messages as one call may carry, at least one."""
    if len(messages) == 1:
        yield messages
        return
    part: list[NewMessage] = []
    left = PART_BYTES_MAX
    for message in messages:
        if part and (message.size > left or len(part) >= PART_MESSAGES_MAX):
            yield part
            part, left = [], PART_BYTES_MAX
        part.append(message)
        left -= message.size
    if part:
        yield part
