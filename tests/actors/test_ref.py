"""tell, send and ask, as senders see them."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from actors import (
    ActorDied,
    AskTimeout,
    ExitKind,
    MailboxFull,
    MailboxSpec,
    Overflow,
    Ref,
    StaleTerm,
)
from tests.actors.troupe import (
    LONG_S,
    Ask,
    Fail,
    Hold,
    Nap,
    Raise,
    Release,
    Say,
    Troupe,
    seeded,
    settle,
)


@asynccontextmanager
async def busy(overflow: Overflow) -> AsyncIterator[tuple[Troupe, Ref[Any]]]:
    """A player that naps for 10 s with its mailbox full."""
    async with Troupe() as troupe:
        spec = troupe.child("a", mailbox=MailboxSpec(bound=1, overflow=overflow))
        ref = await troupe.system.start_child("/root", spec)
        ref.tell(Nap(10))
        await settle()
        ref.tell(Say("fills"))
        yield troupe, ref


@seeded
async def test_an_ask_is_answered() -> None:
    async with Troupe("a") as troupe:
        assert await troupe.ask("a", Say("hello")) == "a@1:hello"


@seeded
async def test_messages_of_one_sender_keep_their_order() -> None:
    async with Troupe("a") as troupe:
        ref = troupe.ref("a")
        for number in range(50):
            ref.tell(number)
        await ref.ask(Say(), deadline_s=1)
        assert troupe.got() == [f"a@1 got {number}" for number in range(50)]


@seeded
async def test_what_the_actor_fails_with_is_raised_to_the_asker() -> None:
    async with Troupe("a") as troupe:
        with pytest.raises(KeyError, match="not here"):
            await troupe.ask("a", Fail())
        assert troupe.terms() == {"a": 1}


@seeded
async def test_an_answer_may_come_much_later() -> None:
    async with Troupe("a") as troupe, anyio.create_task_group() as tasks:

        async def hold() -> None:
            assert await troupe.ask("a", Hold()) == "now"

        for _ in range(3):
            tasks.start_soon(hold)
        await troupe.clock.sleep(50)
        troupe.ref("a").tell(Release("now"))


@seeded
async def test_an_asker_does_not_wait_past_its_deadline_and_the_late_answer_is_dropped() -> None:
    async with Troupe("a") as troupe:
        with pytest.raises(AskTimeout):
            await troupe.ref("a").ask(Nap(5), deadline_s=2)
        assert troupe.clock.monotonic_s() == pytest.approx(2)
        assert await troupe.ask("a", Say()) == "a@1:"
        assert troupe.ref("a").life.promises == {}


@seeded
async def test_an_asker_that_is_cancelled_leaves_nothing_behind() -> None:
    async with Troupe("a") as troupe:
        with anyio.move_on_after(1):
            await troupe.ask("a", Hold())
        assert troupe.ref("a").life.promises == {}
        troupe.ref("a").tell(Release())
        assert await troupe.ask("a", Say()) == "a@1:"


@seeded
async def test_an_asker_is_answered_when_the_actor_dies() -> None:
    async with Troupe("a") as troupe:
        reasons: list[ActorDied] = []

        async def wait(message: Any) -> None:
            with pytest.raises(ActorDied) as caught:
                await ref.ask(message, deadline_s=LONG_S)
            reasons.append(caught.value)

        ref = troupe.ref("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, Hold())
            await settle()
            boom = ValueError("boom")
            ref.tell(Raise(boom))
            for _ in range(3):
                tasks.start_soon(wait, Say("behind"))
        assert {type(died.reason.error) for died in reasons} == {ValueError}
        assert {(died.path, died.term) for died in reasons} == {("/root/a", 1)}
        assert len(reasons) == 4
        assert ref.life.promises == {}


@seeded
async def test_a_reference_to_an_older_incarnation_is_refused_at_once() -> None:
    async with Troupe("a") as troupe:
        old = troupe.ref("a")
        troupe.system.kill("/root/a")
        await settle()
        for verb in (old.ask, old.send):
            with pytest.raises(StaleTerm) as caught:
                await verb(Say(), deadline_s=1)
            assert (caught.value.term, caught.value.current) == (1, 2)
        with pytest.raises(StaleTerm):
            old.tell(Say())
        assert troupe.ref("a") != old


@seeded
async def test_a_reference_to_the_dead_without_a_successor_is_refused_at_once() -> None:
    async with Troupe("a") as troupe:
        ref = troupe.ref("a")
        await troupe.system.stop_child("/root/a")
        with pytest.raises(ActorDied) as caught:
            ref.tell(Say())
        assert caught.value.reason.kind is ExitKind.SHUTDOWN


@seeded
async def test_two_references_to_one_incarnation_are_one_value() -> None:
    async with Troupe("a", "b") as troupe:
        assert {troupe.ref("a"), troupe.ref("a")} == {troupe.ref("a")}
        assert troupe.ref("a") != troupe.ref("b")
        assert troupe.ref("a") != "/root/a"
        assert repr(troupe.ref("a")) == "Ref(/root/a@1)"


@seeded
async def test_a_full_mailbox_that_fails_says_so_to_every_verb() -> None:
    async with busy(Overflow.FAIL) as (_, ref):
        with pytest.raises(MailboxFull):
            ref.tell(Say())
        with pytest.raises(MailboxFull):
            await ref.send(Say(), deadline_s=1)
        with pytest.raises(MailboxFull):
            await ref.ask(Say(), deadline_s=1)


@seeded
async def test_a_full_mailbox_that_sheds_drops_and_counts() -> None:
    async with busy(Overflow.SHED) as (troupe, ref):
        ref.tell(Say())
        await ref.send(Say(), deadline_s=1)
        with pytest.raises(MailboxFull):
            await ref.ask(Say(), deadline_s=1)
        assert troupe.system.statistics()[1].shed == 3


@seeded
async def test_a_full_mailbox_that_blocks_takes_senders_in_their_order() -> None:
    async with busy(Overflow.BLOCK) as (troupe, ref):
        with pytest.raises(MailboxFull):
            ref.tell("no wait")
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                await settle()
                tasks.start_soon(lambda n: ref.send(n, deadline_s=LONG_S), number)
            await settle()
            assert await ref.ask(Say("last"), deadline_s=LONG_S) == "a@1:last"
        assert troupe.got() == [f"a@1 got {number}" for number in range(3)]


@seeded
async def test_who_finds_no_room_in_time_is_told_and_forgotten() -> None:
    async with busy(Overflow.BLOCK) as (_, ref):
        with pytest.raises(MailboxFull):
            await ref.send(Say(), deadline_s=1)
        with pytest.raises(AskTimeout):
            await ref.ask(Say(), deadline_s=1)
        with anyio.move_on_after(1):
            await ref.send(Say(), deadline_s=LONG_S)
        with anyio.move_on_after(1):
            await ref.ask(Say(), deadline_s=LONG_S)
        assert ref.life.mailbox.depth == 1


@seeded
async def test_room_in_the_very_moment_of_the_deadline_is_harmless() -> None:
    async with busy(Overflow.BLOCK) as (_, ref), anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(race, ref)
    assert ref.life.promises == {}


async def race(ref: Ref[Any]) -> None:
    try:
        await ref.send("in time", deadline_s=10)
        await ref.ask(Nap(10), deadline_s=10)
    except (AskTimeout, MailboxFull):
        pass


@seeded
async def test_who_waits_for_room_is_told_of_the_death() -> None:
    async with busy(Overflow.BLOCK) as (troupe, ref), anyio.create_task_group() as tasks:

        async def wait(verb: Any) -> None:
            with pytest.raises(ActorDied):
                await verb(Say(), deadline_s=LONG_S)

        tasks.start_soon(wait, ref.send)
        tasks.start_soon(wait, ref.ask)
        await settle()
        troupe.system.kill("/root/a")


@seeded
async def test_an_asker_that_is_thrown_away_leaves_the_line() -> None:
    async with busy(Overflow.BLOCK) as (_, ref):
        asking = ref.ask(Say(), deadline_s=LONG_S)
        asking.send(None)
        assert ref.life.mailbox.depth == 2
        asking.close()
        assert ref.life.mailbox.depth == 1


@seeded
async def test_who_asks_and_does_not_wait_is_told_the_answer_once() -> None:
    async with Troupe("a") as troupe:
        told: list[object] = []
        ref = troupe.ref("a")
        ref.ask_then(Say("hello"), told.append, deadline_s=1)
        assert told == []
        await settle()
        assert told == ["a@1:hello"]
        assert ref.life.promises == {}
        await troupe.clock.sleep(5)
        assert len(told) == 1


@seeded
async def test_who_asks_and_does_not_wait_is_told_each_error_that_comes_later() -> None:
    async with Troupe("a") as troupe:
        told: list[object] = []
        ref = troupe.ref("a")
        ref.ask_then(Fail(), told.append, deadline_s=1)
        ref.ask_then(Hold(), told.append, deadline_s=2)
        await troupe.clock.sleep(3)
        ref.ask_then(Hold(), told.append, deadline_s=LONG_S)
        await settle()
        troupe.system.kill("/root/a")
        await settle()
        assert [type(it) for it in told] == [KeyError, AskTimeout, ActorDied]
        assert ref.life.promises == {}


@seeded
async def test_who_asks_and_does_not_wait_is_refused_at_once_where_that_is_known() -> None:
    async with busy(Overflow.FAIL) as (troupe, ref):
        told: list[object] = []
        with pytest.raises(MailboxFull):
            ref.ask_then(Say(), told.append, deadline_s=1)
        troupe.system.kill("/root/a")
        with pytest.raises(ActorDied):
            ref.ask_then(Say(), told.append, deadline_s=1)
        await settle()
        assert told == []


@seeded
async def test_who_asks_and_does_not_wait_stands_in_line_like_the_others() -> None:
    async with busy(Overflow.BLOCK) as (troupe, ref):
        told: list[object] = []
        ref.ask_then(Say("too late"), told.append, deadline_s=1)
        ref.ask_then(Say("in time"), told.append, deadline_s=LONG_S)
        assert ref.life.mailbox.depth == 3
        await troupe.clock.sleep(2)
        assert [type(it) for it in told] == [AskTimeout]
        assert ref.life.mailbox.depth == 2
        await troupe.clock.sleep(10)
        assert told[1:] == ["a@1:in time"]


@seeded
async def test_what_asked_and_did_not_wait_is_freed_with_its_answer() -> None:
    class Asker:
        def answered(self, _: object) -> None:
            pass

    async with Troupe("a") as troupe:
        gc.collect()
        gc.disable()
        try:
            for question in (Say("later"), Ask()):
                asker = Asker()
                troupe.ref("a").ask_then(question, asker.answered, deadline_s=1)
                await settle()
                gone = weakref.ref(asker)
                del asker
                assert gone() is None
        finally:
            gc.enable()


@seeded
async def test_an_answer_at_once_is_told_before_the_actor_goes_on_and_only_once() -> None:
    async with Troupe("a") as troupe:
        ref = troupe.ref("a")
        ref.ask_then(Ask(), lambda answer: troupe.journal.append(str(answer)), deadline_s=1)
        await settle()
        assert troupe.journal[-2:] == ["a@1", "a@1 goes on"]
        assert ref.life.promises == {}
        await troupe.clock.sleep(5)
        assert troupe.journal.count("a@1") == 1


@seeded
async def test_an_answer_at_once_is_told_in_the_context_of_who_asked() -> None:
    async with Troupe("a") as troupe:
        mine: ContextVar[str] = ContextVar("mine")
        found: list[str] = []
        for name in ("first", "second"):
            mine.set(name)
            troupe.ref("a").ask_then(Ask(), lambda _: found.append(mine.get()), deadline_s=1)
        mine.set("neither")
        await settle()
        assert found == ["first", "second"]


@seeded
async def test_an_asker_that_fails_over_an_answer_at_once_does_not_harm_the_actor() -> None:
    async with Troupe("a") as troupe:
        faults: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, about: faults.append(about["exception"]))

        def fail(_: object) -> None:
            raise LookupError("mine")

        troupe.ref("a").ask_then(Ask(), fail, deadline_s=1)
        await settle()
        loop.set_exception_handler(None)
        assert [type(it) for it in faults] == [LookupError]
        assert troupe.journal[-1] == "a@1 goes on"
        assert await troupe.ref("a").ask(Ask(), deadline_s=1) == "a@1"


@seeded
async def test_an_answer_at_once_to_who_was_told_that_it_came_too_late_goes_nowhere() -> None:
    async with Troupe("a") as troupe:
        told: list[object] = []
        troupe.ref("a").tell(Nap(5))
        await settle()
        troupe.ref("a").ask_then(Ask(), told.append, deadline_s=1)
        await troupe.clock.sleep(10)
        assert [type(it) for it in told] == [AskTimeout]
