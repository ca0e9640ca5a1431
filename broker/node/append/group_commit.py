"""How batches that wait together become groups: one write and one sync each.

It keeps their order and never splits a batch.
Next: broker/node/append/appender.py
"""

from collections.abc import Sequence
from typing import Any

from actors import Envelope
from broker.node.appender_messages import AppendBatch
from broker.node.state.node_limits import NodeLimits
from broker.ports.ticks import RESERVE_COUNT_MAX

BATCH_MESSAGES_MAX = RESERVE_COUNT_MAX // 4
"""A batch needs its ticks in one piece, one more to close it, and some to end transactions.

Each insert into a collection may need a segment, so one more for its id and one to create it.
"""

Group = list[Envelope[Any]]


def gather(appends: Sequence[Envelope[Any]], limits: NodeLimits) -> list[Group]:
    """The batches as groups, in order."""
    groups: list[Group] = []
    count = size_bytes = 0
    for envelope in appends:
        assert isinstance(envelope.message, AppendBatch)
        more, more_bytes = envelope.message.ticks, envelope.message.size_bytes
        full = (
            count + more > limits.group_messages_max
            or size_bytes + more_bytes > limits.group_bytes_max
        )
        if full or not groups:
            groups.append([])
            count = size_bytes = 0
        groups[-1].append(envelope)
        count += more
        size_bytes += more_bytes
    return groups
