"""What a person sees of the running tree."""

from actors import ChildSpec, MailboxSpec, SupervisorSpec
from tests.actors.troupe import LONG_S, Nap, Player, Raise, Say, Troupe, seeded, settle


@seeded
async def test_the_tree_is_listed_parents_first_in_start_order() -> None:
    inner = SupervisorSpec("inner", children=(ChildSpec("b", Player),))
    async with Troupe("a", inner, "c") as troupe:
        kinds = {s.path: s.kind for s in troupe.system.statistics()}
        assert list(kinds.items()) == [
            ("/root", "supervisor"),
            ("/root/a", "actor"),
            ("/root/inner", "supervisor"),
            ("/root/inner/b", "actor"),
            ("/root/c", "actor"),
        ]
        assert troupe.system.statistics()[0].extra == {"children": 3, "strategy": "one_for_one"}


@seeded
async def test_an_actor_is_shown_with_its_mailbox_and_its_own_figures() -> None:
    async with Troupe() as troupe:
        spec = troupe.child("a", mailbox=MailboxSpec(bound=7))
        ref = await troupe.system.start_child("/root", spec)
        await ref.ask(Say(), deadline_s=LONG_S)
        ref.tell(Nap(5))
        await settle()
        ref.tell(Say())
        shown = troupe.system.statistics()[1]
        assert (shown.mailbox_depth, shown.mailbox_bound, shown.handled) == (1, 7, 2)
        assert shown.extra == {"heard": 2}
        assert (shown.state, shown.restarts, shown.last_error) == ("running", 0, "")


@seeded
async def test_a_restart_is_shown_with_its_cause() -> None:
    async with Troupe("a") as troupe:
        troupe.ref("a").tell(Raise())
        await settle()
        shown = troupe.system.statistics()[1]
        assert (shown.term, shown.restarts) == (2, 1)
        assert shown.last_error == "crashed: ValueError: boom"


class Liar(Player):
    def statistics(self) -> dict[str, int | float | str]:
        raise ZeroDivisionError("no figures")


@seeded
async def test_figures_that_fail_do_not_hide_the_others() -> None:
    async with Troupe(ChildSpec("a", Liar), "b") as troupe:
        shown = troupe.system.statistics()
        assert shown[1].extra == {"statistics_error": "ZeroDivisionError: no figures"}
        assert shown[2].extra == {"heard": 0}
