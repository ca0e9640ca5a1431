"""Credit goes out in halves of the window, and a window of any size starves nobody."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.groups.member_credit import PARTS, MemberCredit
from tests.broker.client.groups.test_groups import filled, running, take, until_empty

SIZES = st.lists(st.integers(1, 3000), min_size=1, max_size=60)


def played(window_bytes: int, sizes: Sequence[int], seed: int) -> list[int]:
    """What a member granted whose server sends while it has credit, in any order of steps."""
    credit, order = MemberCredit(window_bytes), random.Random(seed)
    unsent, waiting = list(sizes), list[int]()
    server_bytes, grants = window_bytes, list[int]()
    while unsent or waiting:
        may_send = bool(unsent) and server_bytes > 0
        assert may_send or waiting, "the server has nothing to send by, and the member nothing"
        if may_send and (not waiting or order.random() < 0.5):
            waiting.append(unsent.pop(0))
            server_bytes -= waiting[-1]
            continue
        credit.taken(waiting.pop(0))
        due_bytes = credit.due_bytes
        if due_bytes:
            grants.append(due_bytes)
            credit.granted(due_bytes)
            server_bytes += due_bytes
    return grants


@given(st.integers(1, 20_000), SIZES, st.integers(0, 1000))
def test_a_member_of_any_window_gets_everything(
    window_bytes: int, sizes: list[int], seed: int
) -> None:
    grants = played(window_bytes, sizes, seed)
    assert sum(grants) > sum(sizes) - max(1, window_bytes // PARTS)


@given(st.integers(1, 20_000), SIZES, st.integers(0, 1000))
def test_each_grant_is_half_of_the_window_or_more(
    window_bytes: int, sizes: list[int], seed: int
) -> None:
    assert all(it >= window_bytes // PARTS for it in played(window_bytes, sizes, seed))


def test_what_is_less_than_half_is_granted_later() -> None:
    credit = MemberCredit(100)
    credit.taken(49)
    assert credit.due_bytes == 0
    credit.taken(1)
    assert credit.due_bytes == 50
    credit.granted(50)
    assert credit.due_bytes == 0


@pytest.mark.parametrize("prefetch_bytes", [1, 5, 4097])
async def test_a_member_with_a_tiny_window_takes_all_of_a_collection(
    tmp_path: Path, prefetch_bytes: int
) -> None:
    async with running(tmp_path) as (_, log):
        wanted, seen = await filled(log, count=40), set[bytes]()
        async with log.group("workers").join("trains", prefetch_bytes=prefetch_bytes) as member:
            while seen < wanted:
                batch = await take(member)
                seen |= set(batch.payloads)
                for message in batch.messages:
                    await batch.ack([message])
        assert seen == wanted
        await until_empty(log, "workers")
