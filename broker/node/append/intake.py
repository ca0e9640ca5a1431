"""Appends to a pchannel: bounds the bytes that wait, and maps actor errors to refusals.

Every message gets an outcome; a refusal says whether the message may be stored nevertheless.

Next: broker/node/append/appender.py
"""

from collections.abc import Callable

from actors import ActorDied, ActorError, AskTimeout, MailboxFull, StaleTerm
from broker.model.batch import Durability, ticks_of
from broker.model.failure import Refusal, StreamingCode
from broker.model.message import NewMessage
from broker.node.append.group_commit import BATCH_MESSAGES_MAX
from broker.node.appender_messages import AppendBatch, AppendOutcome, PlacedApart, RunOutcome
from broker.node.directory_messages import Located

UNKNOWN_OUTCOME = "the messages may or may not be stored"


async def append(
    located: Located,
    messages: tuple[NewMessage, ...],
    *,
    deadline_s: float,
    durability: Durability = Durability.FSYNC,
) -> tuple[AppendOutcome, ...]:
    """Append the messages; one outcome for each, in order. Never raises actor errors.

    Refusals: INNER when more than `located.backlog.bytes_max` bytes wait already (nothing stored;
    watch `bytes_waiting` to slow down earlier). ON_SHUTDOWN: nothing stored, locate again.
    UNKNOWN: the writer died or did not answer in time, the messages may or may not be stored.
    UNRECOVERABLE: too many messages in one batch. With a `durability` below FSYNC the outcomes come
    before the sync and hold only if nothing fails until then. Cancelling stops no write.
    """
    batch = _admitted(located, messages, durability)
    if isinstance(batch, Refusal):
        return (batch,) * len(messages)
    try:
        outcomes = await located.appender.ask(batch, deadline_s=deadline_s)
    except ActorError as error:
        return (_refusal(located, batch, error),) * len(messages)
    # Only a run can be placed apart, and runs come by `append_then`.
    return tuple([it for it in outcomes if not isinstance(it, PlacedApart)])


def append_then(
    located: Located,
    messages: tuple[NewMessage, ...],
    answered: Callable[[tuple[RunOutcome, ...]], None],
    *,
    deadline_s: float,
    durability: Durability = Durability.FSYNC,
) -> None:
    """`append` without waiting: calls `answered` once with the outcomes, perhaps synchronously."""
    batch = _admitted(located, messages, durability)
    if isinstance(batch, Refusal):
        answered((batch,) * len(messages))
        return

    def settle(answer: tuple[RunOutcome, ...] | Exception) -> None:
        if isinstance(answer, Exception):
            answer = (_refusal(located, batch, answer),) * len(messages)
        answered(answer)

    try:
        located.appender.ask_then(batch, settle, deadline_s=deadline_s)
    except ActorError as error:
        # Only errors known at once are raised, and `settle` is never called for those.
        settle(error)


def _admitted(
    located: Located, messages: tuple[NewMessage, ...], durability: Durability
) -> AppendBatch | Refusal:
    """The request to the Appender; adds its bytes to the backlog, the Appender subtracts them."""
    ticks = sum(map(ticks_of, messages))
    # A batch takes its ticks in one reservation, so a larger one could never be stored.
    if not 0 < ticks <= BATCH_MESSAGES_MAX:
        return _too_many(ticks)
    size_bytes = sum([message.size for message in messages])
    if not located.backlog.admit(size_bytes):
        return _too_much(located)
    return AppendBatch(messages, size_bytes, ticks, durability)


def _refusal(located: Located, batch: AppendBatch, error: Exception) -> Refusal:
    """The refusal for a batch that the Appender did not answer."""
    name = located.channel.name
    match error:
        case MailboxFull():
            # It never reached the Appender, which subtracts only what reached it.
            located.backlog.release(batch.size_bytes)
            return _too_much(located)
        case StaleTerm():
            # That term had ended before the batch was queued. Its backlog ended with it, so there
            # is nothing to subtract.
            return Refusal(StreamingCode.ON_SHUTDOWN, _gone(located, "nothing was stored"))
        case ActorDied():
            return Refusal(StreamingCode.UNKNOWN, _gone(located, UNKNOWN_OUTCOME))
        case AskTimeout(deadline_s=deadline_s):
            cause = f"{name}: no answer from the writer within {deadline_s} s; {UNKNOWN_OUTCOME}"
            return Refusal(StreamingCode.UNKNOWN, cause)
        case _:
            return Refusal(StreamingCode.UNKNOWN, f"{name}: {error}; {UNKNOWN_OUTCOME}")


def _too_many(count: int) -> Refusal:
    cause = f"{count} messages in one batch; it must have 1 to {BATCH_MESSAGES_MAX}"
    return Refusal(StreamingCode.UNRECOVERABLE, cause)


def _too_much(located: Located) -> Refusal:
    waiting, limit = located.backlog.bytes_waiting, located.backlog.bytes_max
    cause = (
        f"{located.channel.name}: {waiting} bytes are waiting to be appended (limit {limit});"
        " nothing was stored, retry later"
    )
    return Refusal(StreamingCode.INNER, cause)


def _gone(located: Located, outcome: str) -> str:
    return (
        f"{located.channel.name} left term {located.channel.term}; {outcome};"
        " locate the channel again and retry"
    )
