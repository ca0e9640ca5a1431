"""Which calls a coordinator and a node let in, by who leads."""

from dataclasses import dataclass

import pytest

from broker.edge.rpc.leader_gate import COORDINATOR_TERM, TermFence, leader_gate, standby_gate
from broker.model.failure import DoesNotLead, Refused, StreamingCode


@dataclass
class LeaseFake:
    term: int = 4
    left_s: float = 1.0
    failure: str = ""


class Stored:
    """The term in the store, and how often it was read."""

    def __init__(self, term: int) -> None:
        self.term = term
        self.reads = 0

    async def __call__(self) -> int:
        self.reads += 1
        return self.term


def named(term: int | str) -> dict[str, str | bytes]:
    return {COORDINATOR_TERM: str(term)}


async def test_a_leader_answers_while_its_lease_lasts() -> None:
    lease = LeaseFake()
    gate = leader_gate(lease)
    await gate({}, False)
    await gate(named(4), False)
    lease.left_s = 0.0
    with pytest.raises(DoesNotLead, match="of term 4, does not lead at the moment"):
        await gate({}, False)


@pytest.mark.parametrize(
    ("tells_why", "told"),
    [
        (True, r"or try again\. The lease cannot be renewed: disk full$"),
        # Who calls is not known yet, and the cause names the store and its user.
        (False, r"or try again\. The lease .* in the metadata: the log of this .* say why$"),
    ],
)
async def test_a_leader_without_its_store_says_why_it_does_not_lead(
    tells_why: bool, told: str
) -> None:
    gate = leader_gate(
        LeaseFake(left_s=0.0, failure="The lease cannot be renewed: disk full"),
        tells_why=tells_why,
    )
    with pytest.raises(DoesNotLead, match=told):
        await gate({}, False)


async def test_a_leader_refuses_a_caller_that_has_met_a_newer_one() -> None:
    with pytest.raises(DoesNotLead):
        await leader_gate(LeaseFake())(named(5), False)


async def test_a_leader_that_stops_says_that_nothing_was_done() -> None:
    with pytest.raises(DoesNotLead, match="is stopping"):
        await leader_gate(LeaseFake())({}, True)


@pytest.mark.parametrize(
    ("leader", "text"),
    [("a:1", "the leader is a:1; call it"), ("", "no leader is known yet; try again")],
)
async def test_a_standby_refuses_everything_and_names_the_leader(leader: str, text: str) -> None:
    with pytest.raises(DoesNotLead, match=text) as refused:
        await standby_gate(lambda: leader)({}, False)
    assert refused.value.leader == leader
    assert refused.value.refusal.code is StreamingCode.ON_SHUTDOWN


async def test_a_node_obeys_no_coordinator_older_than_one_it_has_met() -> None:
    stored = Stored(3)
    fence = TermFence(stored)
    assert fence.metadata() == {}
    await fence.check({}, False)
    for _ in range(2):
        await fence.check(named(3), False)
    assert stored.reads == 1, "a known term costs nothing"
    assert fence.metadata() == {COORDINATOR_TERM: "3"}
    stored.term = 5
    await fence.check(named(5), False)
    with pytest.raises(Refused, match="of term 3; the one of term 5 has replaced it"):
        await fence.check(named(3), False)


async def test_a_node_that_looks_finds_that_its_caller_was_replaced_already() -> None:
    fence = TermFence(Stored(5))
    with pytest.raises(Refused, match="of term 3; the one of term 5 has replaced it"):
        await fence.check(named(3), False)
    assert fence.newest == 5


async def test_a_term_that_nobody_has_locks_nobody_out() -> None:
    fence = TermFence(Stored(3))
    with pytest.raises(Refused, match="of a coordinator of term 9; the newest has term 3"):
        await fence.check(named(9), False)
    await fence.check(named(3), False)


@pytest.mark.parametrize("text", ["x", "-1", "1.0", "٣", "9" * 20, " "])
async def test_a_header_that_is_no_term_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is not a term"):
        await TermFence(Stored(3)).check(named(text), False)
