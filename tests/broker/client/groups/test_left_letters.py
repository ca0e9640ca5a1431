"""What redrive says of letters that it cannot append: never more than is known."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from actors.testing import run_seeded
from broker.client.errors import NoSuchVChannel
from broker.client.groups.dead_letters import DeadLetter, letter_of
from broker.client.groups.redrive import (
    HELD_S,
    NotAppended,
    Wanted,
    not_appended,
    redriven,
)
from broker.model.groups.consumer_group import (
    GroupKey,
    GroupLag,
    GroupSnapshot,
    GroupView,
    TickSpan,
)
from broker.model.groups.dead_letter import CAUSE, DELIVERIES, GROUP, ID, ORIGIN, TICK
from broker.model.groups.dead_letter import VCHANNEL as OF_VCHANNEL
from broker.model.ids import TimeTick

PLACE = "p_8v0"
OLD, NOW = "p_1v0", "p_2v0"
LEASE_S = 30.0
LOST = f"^1 dead letters of 'trains' are left, .*: the messages 5 of {OLD}; "


def copy(tick: int, vchannel: str, origin: str = "trains") -> Any:
    marks = {CAUSE: "bad", DELIVERIES: "2", GROUP: "workers", ORIGIN: origin}
    own = {OF_VCHANNEL: vchannel, ID: f"{tick}", TICK: f"{tick}"}
    return SimpleNamespace(
        vchannel=PLACE, tick=tick, payload=b"", key=None, properties={**marks, **own}, tags={}
    )


def letter(tick: int, vchannel: str, origin: str = "trains") -> DeadLetter:
    found = letter_of(copy(tick, vchannel, origin))
    assert found is not None
    return found


def wanted(*elsewhere: int) -> Wanted:
    return Wanted("trains", [NOW], lambda it: it.id in elsewhere)


class Batch:
    def __init__(self, *messages: Any) -> None:
        self.messages = messages

    def __len__(self) -> int:
        return len(self.messages)


class Member:
    """Gets batches at some times."""

    def __init__(self, coming: Mapping[float, Batch]) -> None:
        self._coming = sorted(coming.items())

    async def __aenter__(self) -> "Member":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def __anext__(self) -> Batch:
        await anyio.sleep_until(self._coming[0][0] if self._coming else float("inf"))
        return self._coming.pop(0)[1]


class Redrive:
    """One call, with what the broker tells it."""

    def __init__(self, coming: Mapping[float, Batch]) -> None:
        self.member: Any = Member(coming)
        self.others_until_s = 0.0
        self.lost = 1
        self.acked: list[int] = []

    async def append(self, *_: object, **__: object) -> None:
        pass

    async def ack(self, batch: Batch, messages: Iterable[Any] | None = None) -> None:
        self.acked += [it.tick for it in (batch.messages if messages is None else messages)]

    @asynccontextmanager
    async def staged(self) -> AsyncIterator[Any]:
        yield self

    async def left(self) -> Mapping[str, GroupLag]:
        return {PLACE: GroupLag(0, 0, 0)}

    async def look(self) -> NotAppended:
        others = int(anyio.current_time() < self.others_until_s)
        return NotAppended(TimeTick(9), self.lost, [f"5 of {OLD}"][: self.lost], others)

    async def run(self) -> int:
        return await redriven(self.member, self.left, self.look, wanted(), self.staged)


def test_letters_that_others_hold_are_waited_for_and_appended_before_any_is_called_left() -> None:
    async def scenario() -> None:
        here = Redrive({0.1: Batch(copy(5, OLD)), 40.0: Batch(copy(6, NOW), copy(5, OLD))})
        here.others_until_s = 40.0
        with pytest.raises(NoSuchVChannel, match=LOST) as caught:
            await here.run()
        assert here.acked == [6]
        assert "1 others were appended. Append" in str(caught.value)
        assert '("tick", 10)' in str(caught.value), "no later one is passed over by that seek"

    run_seeded(1, scenario)


def test_lost_letters_that_come_again_do_not_keep_it_from_its_end() -> None:
    """It ends when nobody gets the others any more, too: and does not call them appended."""

    async def scenario() -> None:
        again = {it * LEASE_S / 10: Batch(copy(5, OLD)) for it in range(100)}
        here = Redrive(again)
        here.others_until_s = float("inf")
        with pytest.raises(NoSuchVChannel, match=LOST) as caught:
            await here.run()
        assert HELD_S <= anyio.current_time() < 2 * HELD_S
        told = str(caught.value)
        assert "0 others were appended, and 1 are still to be" in told
        assert "run redrive again. Do not seek" in told
        assert '"tick"' not in told

    run_seeded(1, scenario)


def test_it_ends_as_without_lost_letters_when_somebody_has_sought_past_them() -> None:
    async def scenario() -> None:
        here = Redrive({0.1: Batch(copy(5, OLD), copy(6, NOW))})
        here.lost = 0
        assert await here.run() == 1
        assert anyio.current_time() < HELD_S

    run_seeded(1, scenario)


def test_only_letters_that_are_not_acknowledged_count_and_all_of_them() -> None:
    async def scenario() -> None:
        acked = (TickSpan(TimeTick(10), TimeTick(12)),)
        key = GroupKey(PLACE, "redrive.trains")
        group = GroupSnapshot(key, 1000, TimeTick(5), acked, TimeTick(1), TimeTick(1))
        lost = [letter(it, OLD) for it in (5, 6, 11, 12, 13)]
        mine = [letter(it, NOW) for it in (4, 7, 12)]
        strange = [letter(8, "p_9v0", "ships")]

        async def read() -> AsyncIterator[list[DeadLetter]]:
            yield lost
            yield mine + strange

        found = await not_appended(read(), [GroupView(group)], wanted(13), TimeTick(20))
        assert found == NotAppended(TimeTick(20), 1, [f"6 of {OLD}"], 1)
        found = await not_appended(read(), [], wanted(), TimeTick(20))
        assert (found.lost, found.others) == (5, 3), "nothing is acknowledged without a group"

    run_seeded(1, scenario)


def test_a_letter_that_was_appended_for_its_vchannel_before_that_was_dropped_is_not_lost() -> None:
    async def scenario() -> None:
        assert wanted().lost(letter(5, OLD))
        assert not wanted(5).lost(letter(5, OLD))
        here = Redrive({0.1: Batch(copy(5, OLD))})
        assert await redriven(here.member, here.left, here.look, wanted(5), here.staged) == 0
        assert here.acked == [5]

    run_seeded(1, scenario)
