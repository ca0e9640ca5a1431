"""Which term of a pchannel a node should serve, which it serves, and how each request is answered.

The decision table for the manager's Assign and Remove, and for the checks before a produce or
consume stream opens. `expected` is the newest state asked for, `current` the one reached; a worker
drives `current` towards `expected`. States are ordered by term, and at equal terms removal comes
after serving.
"""

from dataclasses import dataclass, replace

from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import Term

ASKED_TERM_MAX = 1 << 62
"""Half of what can be stored, so that a restart always has a next term to claim."""


@dataclass(frozen=True, slots=True, order=True)
class ServingState:
    """A term that is served or removed. Compares in time order: by term, then serving < removed."""

    term: Term
    removed: bool


@dataclass(frozen=True, slots=True)
class ChannelLifetime:
    """`failure`: why `failed` was not reached; a term that could not be opened is used up."""

    expected: ServingState
    current: ServingState
    failure: Refusal | None = None
    failed: ServingState | None = None


# Below every term that can be asked for.
NEVER_SEEN = ChannelLifetime(ServingState(Term(-1), True), ServingState(Term(-1), True))


@dataclass(frozen=True, slots=True)
class NoAnswerYet:
    """The request is not answered yet."""


def expect(lifetime: ChannelLifetime, asked: ServingState) -> ChannelLifetime | Refusal:
    """Expect the state asked for; refused unless it is later than the newest expectation."""
    if asked > lifetime.expected:
        # An earlier attempt at the same stage may have failed, and was answered then.
        return replace(lifetime, expected=asked, failure=None, failed=None)
    verb, newest = ("remove" if asked.removed else "assign"), lifetime.expected
    state = "removed" if newest.removed else "assigned"
    return Refusal(
        StreamingCode.IGNORED_OPERATION,
        f"{verb} at term {asked.term} is not later than term {newest.term}, already {state} here",
    )


def opened(lifetime: ChannelLifetime, term: Term) -> ChannelLifetime:
    """The channel serves at `term`, which is above the expected one if the node restarted it.

    It may have failed at this term before: the storage recovered.
    """
    now = ServingState(term, removed=False)
    # Terms only grow here: a report about an older one came late.
    if term < lifetime.current.term:
        return lifetime
    return ChannelLifetime(expected=max(lifetime.expected, now), current=now)


def failed(lifetime: ChannelLifetime, stage: ServingState, failure: Refusal) -> ChannelLifetime:
    """The stage could not be reached, or its term was lost. `current` stays: only `closed` ends it.

    A term that failed stays expected: it cannot be assigned again, and a Remove is carried out. A
    Remove that failed may be asked for again.
    """
    if stage.term < lifetime.current.term:
        return lifetime
    lifetime = replace(lifetime, failure=failure, failed=stage)
    if stage.removed and lifetime.expected == stage:
        return replace(lifetime, expected=lifetime.current)
    return lifetime


def closed(lifetime: ChannelLifetime, term: Term) -> ChannelLifetime:
    """The channel was closed: no term up to `term` is served here any more."""
    return replace(lifetime, current=max(lifetime.current, ServingState(term, removed=True)))


def answer_for(lifetime: ChannelLifetime, asked: ServingState) -> NoAnswerYet | Refusal | None:
    """The answer to the request for the state `asked`, which was accepted; None is success.

    Success of a Remove lets the coordinator open the channel elsewhere, so it is answered when the
    channel is closed here; or when a newer term was assigned, which makes who removed it too late.
    """
    if lifetime.failed == asked and lifetime.failure is not None:
        return lifetime.failure
    if asked.removed:
        superseded = lifetime.expected.term > asked.term and not lifetime.expected.removed
        return None if superseded or lifetime.current >= asked else NoAnswerYet()
    if lifetime.current == asked:
        return None
    if lifetime.expected > asked:
        return Refusal(
            StreamingCode.UNMATCHED_CHANNEL_TERM,
            f"assign at term {asked.term} was overtaken by term {lifetime.expected.term}",
        )
    return NoAnswerYet()


def channel_refusal(name: str, term: int | None) -> Refusal | None:
    """What is wrong with a channel and term in a request, before any lookup; None if valid."""
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
    """The checks before a stream opens, in order; None admits it.

    `asked` None accepts any term. `serving` None: the pchannel is not open on this node.
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
    """The refusal of an append to a channel that is served read-only."""
    cause = f"{name} is served read-only: nothing can be appended until it is assigned read-write"
    return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
