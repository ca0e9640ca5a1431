"""Readers that wait at the end of the tail hear ticks at little cost."""

import sys
from types import FrameType

from actors.testing import run_seeded
from broker.model.position import FromLatest
from broker.node.scanner_messages import Delivery, Pull
from tests.broker.core.log.singly import messages_of
from tests.broker.node.test_scanner import opened
from tests.broker.node.world import message, running_node


def test_a_tick_alone_looks_for_no_messages_and_a_message_after_it_is_not_missed() -> None:
    looked = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal looked
        looked += event == "call" and frame.f_code.co_name == "deliver"

    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await world.clock.sleep(1)
            latest = await opened(world, policy=FromLatest())
            cursor, ticks = latest.cursor, []
            sys.setprofile(count)
            try:
                for _ in range(6):
                    answer = await latest.scanner.ask(Pull(cursor, 1), deadline_s=9)
                    assert isinstance(answer, Delivery)
                    assert answer.tick is not None
                    ticks.append(answer.tick.tick)
                    cursor = answer.cursor
            finally:
                sys.setprofile(None)
            assert ticks == sorted(set(ticks))
            await world.append(message("new"))
            answer = await latest.scanner.ask(Pull(cursor, 1), deadline_s=9)
            assert isinstance(answer, Delivery)
            (item,) = messages_of(answer.items)
            assert item.body == b"new"
            assert item.tick > ticks[-1]

    run_seeded(7, scenario)
    assert looked <= 2
