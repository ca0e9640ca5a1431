"""Code of an actor knows whose it is: in its task, in its threads, and after a restart."""

from typing import Any

import pytest
from anyio import to_thread

from actors import ActorDied
from actors.identity import Identity, assumed, identity
from tests.actors.troupe import LONG_S, Raise, Say, Troupe, seeded, settle


@seeded
async def test_a_restarted_actor_is_known_by_its_new_term() -> None:
    seen: list[Identity | None] = []

    async def look(player: Any) -> None:
        seen.append(identity())

    async with Troupe() as troupe:
        ref = await troupe.system.start_child("/root", troupe.child("a", on_start=look))
        with pytest.raises(ActorDied):
            await ref.ask(Raise(), deadline_s=LONG_S)
        await settle()
        again = troupe.system.find("/root/a")
        assert await again.ask(Say("x"), deadline_s=LONG_S) == "a@2:x"
    assert seen == [Identity("/root/a", 1), Identity("/root/a", 2)]
    assert identity() is None


async def test_a_thread_is_the_work_of_who_started_it() -> None:
    with assumed(Identity("/root/a", 7)):
        assert await to_thread.run_sync(identity) == Identity("/root/a", 7)
    assert identity() is None
