"""Which term of a pchannel this node should serve, which one it does serve, and who is told what.

The decision table of Assign and Remove (facts, wire 8 and semantics 5.1) and of the checks before
a handler call (wire 3.1). It never opens or closes anything: one worker moves `current` to
`expected`. Later means: a higher term, or at the same term the removal.
"""

from dataclasses import dataclass, replace

from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import Term

ASKED_TERM_MAX = 1 << 62
"""Half of what can be stored: whoever is asked for more could never take a next one."""


@dataclass(frozen=True, slots=True, order=True)
class ServingState:
    """A term, being served or removed. The order of the fields is the order of time."""

    term: Term
    removed: bool


@dataclass(frozen=True, slots=True)
class ChannelLifetime:
    """`failure` is why `current`'s term could not be opened; then it is burnt."""

    expected: ServingState
    current: ServingState
    failure: Refusal | None = None


NEVER_SEEN = ChannelLifetime(ServingState(Term(-1), True), ServingState(Term(-1), True))


@dataclass(frozen=True, slots=True)
class NoAnswerYet:
    """No answer yet."""


def expect(lifetime: ChannelLifetime, asked: ServingState) -> ChannelLifetime | Refusal:
    """Take a new expectation if it is later than the newest one."""
    if asked > lifetime.expected:
        return replace(lifetime, expected=asked)
    verb, newest = ("remove" if asked.removed else "assign"), lifetime.expected
    state = "removed" if newest.removed else "assigned"
    return Refusal(
        StreamingCode.IGNORED_OPERATION,
        f"{verb} at term {asked.term} is not later than term {newest.term}, already {state} here",
    )


def opened(lifetime: ChannelLifetime, term: Term) -> ChannelLifetime:
    """The channel serves at `term`; higher than expected when it restarted by itself.

    It may have failed at this very term before: the storage came back.
    """
    now = ServingState(term, removed=False)
    if term < lifetime.current.term:
        return lifetime
    return ChannelLifetime(expected=max(lifetime.expected, now), current=now)


def failed(lifetime: ChannelLifetime, term: Term, failure: Refusal) -> ChannelLifetime:
    """The channel could not be opened at `term`, or lost it; nobody can assign that term again.

    It stays expected, so that a Remove at the same term still finds something to confirm.
    """
    if term < lifetime.current.term:
        return lifetime
    return replace(lifetime, current=ServingState(term, removed=True), failure=failure)


def closed(lifetime: ChannelLifetime, term: Term) -> ChannelLifetime:
    """The channel was released; nothing up to `term` serves here any more."""
    return replace(lifetime, current=max(lifetime.current, ServingState(term, removed=True)))


def answer_for(lifetime: ChannelLifetime, asked: ServingState) -> NoAnswerYet | Refusal | None:
    """What to answer whoever asked for a stage that was taken; None is success."""
    superseded = lifetime.expected.term > asked.term
    if asked.removed:
        return None if superseded or lifetime.current >= asked else NoAnswerYet()
    if lifetime.current == asked:
        return None
    if lifetime.failure is not None and lifetime.current.term == asked.term:
        return lifetime.failure
    if superseded or lifetime.expected > asked:
        return Refusal(
            StreamingCode.UNMATCHED_CHANNEL_TERM,
            f"assign at term {asked.term} was overtaken by term {lifetime.expected.term}",
        )
    return NoAnswerYet()


def channel_refusal(name: str, term: int | None) -> Refusal | None:
    """What is wrong with a channel as a request names it, before anything is looked up."""
    if not name:
        return Refusal(StreamingCode.INVALID_ARGUMENT, "the pchannel name is empty")
    if term is not None and term <= 0:
        return Refusal(StreamingCode.INVALID_ARGUMENT, f"{name}: term {term} is not positive")
    if term is not None and term > ASKED_TERM_MAX:
        cause = f"{name}: term {term} is above {ASKED_TERM_MAX}"
        return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
    return None


def call_refusal(
    name: str, asked: Term | None, serving: Term | None, *, closing: bool
) -> Refusal | None:
    """The checks before a handler call, in their order; None lets it through.

    `asked` None takes any term. `serving` None: the pchannel is not open here.
    """
    refusal = channel_refusal(name, asked)
    if refusal is not None:
        return refusal
    if closing:
        return Refusal(StreamingCode.ON_SHUTDOWN, f"{name}: this node is shutting down")
    if serving is None:
        return Refusal(StreamingCode.CHANNEL_NOT_EXIST, f"{name} is not open on this node")
    if asked is not None and asked != serving:
        return Refusal(
            StreamingCode.UNMATCHED_CHANNEL_TERM,
            f"{name} is open at term {serving}, not at term {asked}",
        )
    return None


def read_only_refusal(name: str) -> Refusal:
    """What a writer is told of a channel that is served to readers only."""
    cause = f"{name} is served read-only: nothing can be appended until it is assigned read-write"
    return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
