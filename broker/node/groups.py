"""How batches that wait together become groups: one write and one sync each.

It keeps their order and never splits a batch.
Next: broker/node/appender.py
"""

from collections.abc import Sequence

from actors import Envelope
from broker.model.failure import Refusal, StreamingCode
from broker.node.limits import NodeLimits
from broker.node.messages import AppendBatch, AppenderMessage
from broker.ports.ticks import RESERVE_COUNT_MAX

BATCH_MESSAGES_MAX = RESERVE_COUNT_MAX - 1
"""A batch needs its ticks in one piece, and one more to close it."""

Group = list[Envelope[AppenderMessage]]


def gather(appends: Sequence[Envelope[AppenderMessage]], limits: NodeLimits) -> list[Group]:
    """The batches as groups, in order; an empty one, or one too large for any, is answered here."""
    groups: list[Group] = []
    count = size_bytes = 0
    for envelope in appends:
        assert isinstance(envelope.message, AppendBatch)
        messages = envelope.message.messages
        if not 0 < len(messages) <= BATCH_MESSAGES_MAX:
            envelope.reply((_too_many(len(messages)),) * len(messages))
            continue
        more_bytes = sum([len(message.body) for message in messages])
        full = (
            count + len(messages) > limits.group_messages_max
            or size_bytes + more_bytes > limits.group_bytes_max
        )
        if full or not groups:
            groups.append([])
            count = size_bytes = 0
        groups[-1].append(envelope)
        count += len(messages)
        size_bytes += more_bytes
    return groups


def _too_many(count: int) -> Refusal:
    cause = f"{count} messages in one batch; the limit is {BATCH_MESSAGES_MAX}"
    return Refusal(StreamingCode.UNRECOVERABLE, cause)
