"""What a place under a supervisor remembers."""

from actors import TEMPORARY, ChildSpec, SupervisorSpec
from actors.slot import FORMER_NAMES_MAX, Slot
from tests.actors.troupe import Player


def supervisor(*names: str) -> Slot:
    slot = Slot(SupervisorSpec("root", children=tuple(ChildSpec(n, Player) for n in names)), "")
    slot.reset()
    return slot


def test_a_removed_name_is_remembered_with_its_term() -> None:
    root = supervisor()
    root.add(ChildSpec("a", Player), dynamic=True).term = 7
    root.remove("a")
    assert root.add(ChildSpec("a", Player), dynamic=True).term == 7


def test_a_temporary_child_is_forgotten() -> None:
    root = supervisor()
    root.add(ChildSpec("a", Player, restart=TEMPORARY), dynamic=True).term = 7
    root.remove("a")
    assert root.add(ChildSpec("a", Player), dynamic=True).term == 0


def test_the_memory_is_bounded_and_forgets_the_oldest() -> None:
    root = supervisor()
    for number in range(FORMER_NAMES_MAX + 10):
        root.add(ChildSpec(str(number), Player), dynamic=True).term = 7
        root.remove(str(number))
    assert len(root._former) == FORMER_NAMES_MAX
    assert root.add(ChildSpec("9", Player), dynamic=True).term == 0
    assert root.add(ChildSpec("10", Player), dynamic=True).term == 7


def test_a_supervisor_that_starts_again_has_the_children_of_its_spec_and_their_terms() -> None:
    names = [str(number) for number in range(FORMER_NAMES_MAX + 10)]
    root = supervisor(*names)
    root.add(ChildSpec("dynamic", Player), dynamic=True)
    for slot in root.children.values():
        slot.term = 3
    root.reset()
    assert list(root.children) == names
    assert {slot.term for slot in root.children.values()} == {3}


def test_a_place_without_a_planned_restart_has_nothing_to_cancel() -> None:
    slot = supervisor("a").children["a"]
    slot.cancel_retry()
    assert slot.state == "waiting"
