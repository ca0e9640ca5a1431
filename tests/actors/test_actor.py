"""What an actor gets from the runtime."""

from collections.abc import Sequence

import pytest

from actors import Actor, ChildSpec, Envelope, MailboxSpec, Overflow
from tests.actors.troupe import Leave, Nap, Player, Raise, Say, Troupe, seeded, settle


@seeded
async def test_an_actor_knows_who_it_is() -> None:
    async with Troupe("a") as troupe:
        context = troupe.player("a").context
        assert (context.path, context.term) == ("/root/a", 1)
        assert context.self == troupe.ref("a")
        assert context.clock is troupe.clock
        assert context.tree is troupe.system


@seeded
async def test_the_randomness_of_an_actor_comes_from_the_seed_of_its_system() -> None:
    draws = []
    for seed in (1, 1, 2):
        async with Troupe("a", "b", seed=seed) as troupe:
            draws.append([player.context.random.random() for player in troupe.players])
    assert draws[0] == draws[1] != draws[2]
    assert draws[0][0] != draws[0][1]


@seeded
async def test_an_actor_can_see_that_messages_to_it_were_dropped() -> None:
    async with Troupe() as troupe:
        mailbox = MailboxSpec(bound=2, overflow=Overflow.SHED)
        spec = troupe.child("a", mailbox=mailbox)
        ref = await troupe.system.start_child("/root", spec)
        context = troupe.player("a").context
        assert context.shed == 0
        for _ in range(5):
            ref.tell(Say())
        assert context.shed == 3


@seeded
async def test_an_actor_can_see_how_many_messages_wait_behind_those_it_handles() -> None:
    async with Troupe("a") as troupe:
        context, ref = troupe.player("a").context, troupe.ref("a")
        ref.tell(Nap(5))
        await settle()
        assert context.waiting == 0
        ref.tell(Say())
        ref.tell(Say())
        assert context.waiting == 2


@seeded
async def test_a_watcher_is_told_once_of_the_end() -> None:
    async with Troupe("a", "b") as troupe:
        for _ in range(2):
            troupe.player("a").context.watch(troupe.ref("b"))
        troupe.ref("b").tell(Raise())
        await settle()
        saw = [line for line in troupe.journal if "saw" in line]
        assert saw == ["a@1 saw /root/b@1 crashed: ValueError: boom"]


@seeded
async def test_who_watches_the_dead_is_told_at_once() -> None:
    async with Troupe("a", "b") as troupe:
        old = troupe.ref("b")
        await troupe.system.stop_child("/root/b")
        troupe.player("a").context.watch(old)
        await settle()
        assert "a@1 saw /root/b@1 stopped by its supervisor" in troupe.journal


@seeded
async def test_a_watcher_that_dies_is_forgotten() -> None:
    async with Troupe("a", "b") as troupe:
        watched = troupe.ref("b").life
        troupe.player("a").context.watch(troupe.ref("b"))
        assert len(watched.watchers) == 1
        troupe.system.kill("/root/a")
        assert len(watched.watchers) == 0


@seeded
async def test_the_dead_watch_nobody() -> None:
    async with Troupe("a", "b") as troupe:
        context, old = troupe.player("a").context, troupe.ref("b")
        troupe.system.kill("/root/a")
        context.watch(old)
        assert len(old.life.watchers) == 0
        await troupe.system.stop_child("/root/b")
        context.watch(old)
        await settle()
        assert not any("saw" in line for line in troupe.journal)


@seeded
async def test_several_watchers_are_told() -> None:
    async with Troupe("a", "b", "c") as troupe:
        for name in "ab":
            troupe.player(name).context.watch(troupe.ref("c"))
        await troupe.system.stop_child("/root/c")
        await settle()
        assert sum("saw /root/c@1" in line for line in troupe.journal) == 2


@seeded
async def test_an_actor_may_stop_itself() -> None:
    async with Troupe("a") as troupe:
        ref = troupe.ref("a")
        ref.tell(Leave())
        ref.tell("unheard")
        await settle()
        assert troupe.journal[:3] == ["a@1 started", "a@1 stops", "a@1 stopped"]
        assert troupe.terms() == {"a": 2}


@seeded
async def test_an_actor_may_stop_itself_while_it_starts() -> None:
    troupe = Troupe()

    async def leave(player: Player) -> None:
        player.context.stop()

    async with troupe:
        spec = troupe.child("a", on_start=leave)
        await troupe.system.start_child("/root", spec)
        await settle()
        assert troupe.journal[:3] == ["a@1 started", "a@1 stops", "a@1 stopped"]


class Bare(Actor[Say]):
    """Defines what it must and nothing else."""

    async def receive(self, batch: Sequence[Envelope[Say]]) -> None:
        for envelope in batch:
            envelope.reply(None)


@seeded
async def test_all_but_receive_may_be_left_out() -> None:
    async with Troupe(ChildSpec("a", Bare)) as troupe:
        assert troupe.system.statistics()[1].extra == {}
        assert await troupe.ref("a").ask(Say(), deadline_s=1) is None


def test_an_actor_that_receives_nothing_cannot_be_made() -> None:
    class Deaf(Actor[Say]):
        pass

    with pytest.raises(TypeError, match="receive"):
        Deaf()  # type: ignore[abstract]
