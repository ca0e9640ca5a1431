"""The way into a pchannel's Appender: counts bytes in and turns actor errors into refusals.

It never touches the log. Every message gets an outcome; a refusal says whether it may have landed.
Why the Appender counts the bytes out: an asker may leave long before its messages do.
Next: broker/node/append/appender.py
"""

from collections.abc import Callable

from actors import ActorDied, ActorError, AskTimeout, MailboxFull, StaleTerm
from broker.model.batch import Durability, ticks_of
from broker.model.failure import Refusal, StreamingCode
from broker.model.message import NewMessage
from broker.node.append.group_commit import BATCH_MESSAGES_MAX
from broker.node.appender_messages import AppendBatch, AppendOutcome
from broker.node.directory_messages import Located

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
    batch = _admitted(located, messages, durability)
    if isinstance(batch, Refusal):
        return (batch,) * len(messages)
    try:
        return await located.appender.ask(batch, deadline_s=deadline_s)
    except ActorError as error:
        return (_refusal(located, batch, error),) * len(messages)


def append_then(
    located: Located,
    messages: tuple[NewMessage, ...],
    answered: Callable[[tuple[AppendOutcome, ...]], None],
    *,
    deadline_s: float,
    durability: Durability = Durability.FSYNC,
) -> None:
    """`append` for whoever does not wait: `answered` gets the outcomes, once, perhaps at once."""
    batch = _admitted(located, messages, durability)
    if isinstance(batch, Refusal):
        answered((batch,) * len(messages))
        return

    def settle(answer: tuple[AppendOutcome, ...] | Exception) -> None:
        if isinstance(answer, Exception):
            answer = (_refusal(located, batch, answer),) * len(messages)
        answered(answer)

    try:
        located.appender.ask_then(batch, settle, deadline_s=deadline_s)
    except ActorError as error:
        settle(error)


def _admitted(
    located: Located, messages: tuple[NewMessage, ...], durability: Durability
) -> AppendBatch | Refusal:
    """What the Appender is asked, its bytes counted in."""
    ticks = sum(map(ticks_of, messages))
    if not 0 < ticks <= BATCH_MESSAGES_MAX:
        return _too_many(ticks)
    size_bytes = sum([message.size for message in messages])
    if not located.backlog.admit(size_bytes):
        return _too_much(located)
    return AppendBatch(messages, size_bytes, ticks, durability)


def _refusal(located: Located, batch: AppendBatch, error: Exception) -> Refusal:
    """Why a batch has no outcomes of its own."""
    name = located.channel.name
    match error:
        case MailboxFull():
            located.backlog.release(batch.size_bytes)
            return _too_much(located)
        case StaleTerm():
            return Refusal(StreamingCode.ON_SHUTDOWN, _gone(located, "nothing was stored"))
        case ActorDied():
            return Refusal(StreamingCode.UNKNOWN, _gone(located, UNKNOWN_OUTCOME))
        case AskTimeout(deadline_s=deadline_s):
            cause = f"{name}: no answer within {deadline_s} s; {UNKNOWN_OUTCOME}"
            return Refusal(StreamingCode.UNKNOWN, cause)
        case _:
            return Refusal(StreamingCode.UNKNOWN, f"{name}: {error}; {UNKNOWN_OUTCOME}")


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
