"""Timers are messages, and die with who set them."""

from actors import ChildSpec, Envelope, MailboxSpec, Overflow
from tests.actors.troupe import Nap, Say, Troupe, seeded, settle


@seeded
async def test_a_message_arrives_after_its_delay_and_once() -> None:
    async with Troupe("a") as troupe:
        troupe.player("a").context.after(2.0, "tick")
        await troupe.clock.sleep(1.9)
        assert troupe.got() == []
        await troupe.clock.sleep(10)
        assert troupe.got() == ["a@1 got tick"]
        assert troupe.ref("a").life.timers == {}


@seeded
async def test_a_periodic_message_arrives_each_period() -> None:
    async with Troupe("a") as troupe:
        timer = troupe.player("a").context.every(1.0, "tick")
        await troupe.clock.sleep(5.5)
        timer.cancel()
        await troupe.clock.sleep(5)
        assert troupe.got() == ["a@1 got tick"] * 5


@seeded
async def test_at_most_one_undelivered_tick_waits() -> None:
    async with Troupe("a") as troupe:
        troupe.player("a").context.every(1.0, "tick")
        troupe.ref("a").tell(Nap(10.5))
        await troupe.clock.sleep(10.2)
        assert troupe.ref("a").life.mailbox.depth == 1
        await troupe.clock.sleep(0.5)
        assert troupe.got() == ["a@1 got tick"]


@seeded
async def test_a_cancelled_timer_is_silent_even_if_its_message_waits_already() -> None:
    async with Troupe("a") as troupe:
        timer = troupe.player("a").context.after(1.0, "tick")
        troupe.ref("a").tell(Nap(5))
        await troupe.clock.sleep(2)
        timer.cancel()
        timer.cancel()
        await troupe.ask("a", Say())
        assert troupe.got() == []


@seeded
async def test_room_freed_by_a_cancelled_timer_goes_to_who_waits() -> None:
    troupe = Troupe()
    narrow = troupe.child("a", mailbox=MailboxSpec(bound=1, overflow=Overflow.BLOCK))
    async with troupe:
        ref = await troupe.system.start_child("/root", narrow)
        timer = troupe.player("a").context.after(1.0, "tick")
        ref.tell(Nap(5))
        await troupe.clock.sleep(2)
        ref.life.mailbox.line_up(Envelope("waited"))
        timer.cancel()
        assert ref.life.mailbox.depth == 1
        await troupe.ask("a", Say())
        assert troupe.got() == ["a@1 got waited"]


@seeded
async def test_timers_die_with_the_incarnation() -> None:
    async with Troupe("a") as troupe:
        context = troupe.player("a").context
        context.every(1.0, "tick")
        context.after(1.0, "once")
        troupe.system.kill("/root/a")
        context.after(1.0, "set by the dead")
        context.every(1.0, "set by the dead").cancel()
        await troupe.clock.sleep(5)
        assert troupe.got() == []
        assert troupe.terms() == {"a": 2}


@seeded
async def test_a_full_mailbox_has_room_for_a_tick() -> None:
    troupe = Troupe()
    async with troupe:
        spec = troupe.child("a", mailbox=MailboxSpec(bound=1))
        assert isinstance(spec, ChildSpec)
        ref = await troupe.system.start_child("/root", spec)
        ref.tell(Nap(5))
        await settle()
        ref.tell("full")
        troupe.player("a").context.after(1.0, "tick")
        await troupe.clock.sleep(10)
        assert troupe.got() == ["a@1 got full", "a@1 got tick"]
