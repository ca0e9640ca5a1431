"""Calls about groups take turns, in order; too many at once are refused before they are sent."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from actors.testing import run_seeded
from broker.client.errors import DeadlineExceeded, ResourceAcquired
from broker.client.groups.turns import Turns
from tests.broker.client.groups.test_groups import running

GROUPS = 300


def test_so_many_run_at_a_time_and_one_that_fails_makes_room() -> None:
    async def scenario() -> None:
        turns, running_now, begun = Turns(at_once=3), 0, list[int]()

        async def call(number: int) -> int:
            nonlocal running_now
            running_now += 1
            begun.append(number)
            assert running_now <= 3
            await asyncio.sleep(1)
            running_now -= 1
            if number % 4 == 3:
                raise DeadlineExceeded("too late")
            return number

        async def one(number: int) -> int | None:
            try:
                return await turns.take(lambda: call(number))
            except DeadlineExceeded:
                return None

        found = await asyncio.gather(*map(one, range(20)))
        assert sorted(begun) == list(range(20))
        assert found == [None if it % 4 == 3 else it for it in range(20)]

    run_seeded(1, scenario)


def test_what_would_wait_beyond_the_limit_is_refused_at_once_and_a_cancelled_one_makes_room() -> (
    None
):
    async def scenario() -> None:
        turns, over = Turns(at_once=1, waiting_max=2), asyncio.Event()

        async def impatient() -> str:
            try:
                async with asyncio.timeout(2):
                    await turns.take(over.wait)
            except TimeoutError:
                return "gone"
            return "done"

        async def late() -> bool:
            await asyncio.sleep(1)
            with pytest.raises(ResourceAcquired, match="2 calls about groups wait") as caught:
                await turns.take(over.wait)
            assert caught.value.retriable
            await asyncio.sleep(2)
            asyncio.get_running_loop().call_later(1, over.set)
            return await turns.take(over.wait)

        first = turns.take(over.wait)
        found = await asyncio.gather(first, turns.take(over.wait), impatient(), late())
        assert list(found) == [True, True, "gone", True]

    run_seeded(1, scenario)


async def test_hundreds_of_groups_created_at_once_are_all_there(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        made = await asyncio.gather(*(log.group(f"g{it}").create("trains") for it in range(GROUPS)))
        assert Counter(len(it) for it in made) == {1: GROUPS}
        assert len(await log.groups.list("trains")) == GROUPS
