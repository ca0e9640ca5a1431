"""The way into a pchannel's Appender: counts bytes in and turns actor errors into refusals.

It never touches the log. Every message gets an outcome; a refusal says whether it may have landed.
Why the Appender counts the bytes out: an asker may leave long before its messages do.
Next: broker/node/appender.py
"""

from actors import ActorDied, AskTimeout, MailboxFull, StaleTerm
from broker.model.batch import Durability, ticks_of
from broker.model.failure import Refusal, StreamingCode
from broker.model.message import NewMessage
from broker.node.groups import BATCH_MESSAGES_MAX
from broker.node.messages import AppendBatch, AppendOutcome, Located

UNKNOWN_OUTCOME = "the outcome is unknown: the messages may or may not be stored"


async def append(
    located: Located,
    messages: tuple[NewMessage, ...],
    *,
    deadline_s: float,
    durability: Durability = Durability.FSYNC,
) -> tuple[AppendOutcome, ...]:
    """Append the messages and give one outcome for each, in order; never raises actor errors.

    When more than `located.backlog.bytes_max` bytes wait already: INNER, nothing was stored; slow
    down before that by looking at `located.backlog.bytes_waiting`. ON_SHUTDOWN: nothing was stored,
    locate again. UNKNOWN: it may or may not be stored, as the writer died or gave no answer in
    time. UNRECOVERABLE: too many in one batch. With less than FSYNC for `durability` the outcomes
    come sooner, and say only where the messages will be when nothing fails before the sync.
    """
    ticks = sum(map(ticks_of, messages))
    if not 0 < ticks <= BATCH_MESSAGES_MAX:
        return (_too_many(ticks),) * len(messages)
    size_bytes = sum([message.size for message in messages])
    if not located.backlog.admit(size_bytes):
        return (_too_much(located),) * len(messages)
    try:
        batch = AppendBatch(messages, size_bytes, ticks, durability)
        return await located.appender.ask(batch, deadline_s=deadline_s)
    except MailboxFull:
        located.backlog.release(size_bytes)
        return (_too_much(located),) * len(messages)
    except StaleTerm:
        cause = _gone(located, "nothing was stored")
        return (Refusal(StreamingCode.ON_SHUTDOWN, cause),) * len(messages)
    except ActorDied:
        cause = _gone(located, UNKNOWN_OUTCOME)
        return (Refusal(StreamingCode.UNKNOWN, cause),) * len(messages)
    except AskTimeout:
        cause = f"{located.channel.name}: no answer within {deadline_s} s; {UNKNOWN_OUTCOME}"
        return (Refusal(StreamingCode.UNKNOWN, cause),) * len(messages)


def _too_many(count: int) -> Refusal:
    cause = f"{count} messages in one batch; the limit is {BATCH_MESSAGES_MAX}"
    return Refusal(StreamingCode.UNRECOVERABLE, cause)


def _too_much(located: Located) -> Refusal:
    waiting, limit = located.backlog.bytes_waiting, located.backlog.bytes_max
    cause = (
        f"{located.channel.name}: {waiting} bytes wait to be appended, the limit is {limit};"
        " nothing was stored, try again later"
    )
    return Refusal(StreamingCode.INNER, cause)


def _gone(located: Located, outcome: str) -> str:
    return (
        f"{located.channel.name} left term {located.channel.term}; {outcome};"
        " locate the channel again and retry"
    )
