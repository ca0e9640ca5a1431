"""A view of the running tree, as plain values."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from actors.cell import Cell
from actors.slot import Slot
from actors.spec import SupervisorSpec


@dataclass(frozen=True, slots=True)
class ActorStatistics:
    """One path of the tree. `mailbox_*`, `shed` and `handled` belong to the present incarnation.

    `state`: starting, running, stopping, dying, waiting (for its restart), stopped (permanently),
    or abandoned (it resisted cancellation and still runs). `extra`: the actor's own figures.
    """

    path: str
    term: int
    kind: str
    state: str
    mailbox_depth: int = 0
    mailbox_bound: int = 0
    shed: int = 0
    restarts: int = 0
    handled: int = 0
    last_error: str = ""
    extra: Mapping[str, int | float | str] = field(default_factory=dict)


def walk(slot: Slot) -> Iterator[ActorStatistics]:
    """This place and its descendants, parents first, in start order."""
    yield _of_slot(slot)
    for child in slot.children.values():
        yield from walk(child)


def abandoned(cells: Iterable[Cell]) -> Iterator[ActorStatistics]:
    """The running cells that were abandoned and are not in the tree any more."""
    lost = (cell for cell in cells if cell.life.over)
    for cell in sorted(lost, key=lambda cell: (cell.life.path, cell.life.term)):
        yield ActorStatistics(cell.life.path, cell.life.term, "actor", cell.state)


def _of_slot(slot: Slot) -> ActorStatistics:
    kind = "supervisor" if isinstance(slot.spec, SupervisorSpec) else "actor"
    cell = slot.cell
    if cell is None:
        return ActorStatistics(
            slot.path, slot.term, kind, slot.state,
            restarts=slot.restarts, last_error=slot.last_error,
        )  # fmt: skip
    mailbox = cell.life.mailbox
    return ActorStatistics(
        slot.path, slot.term, kind, slot.state,
        mailbox_depth=mailbox.depth, mailbox_bound=mailbox.spec.bound, shed=mailbox.shed,
        restarts=slot.restarts, handled=cell.handled, last_error=slot.last_error,
        extra=_extra(cell),
    )  # fmt: skip


def _extra(cell: Cell) -> Mapping[str, int | float | str]:
    try:
        return dict(cell.actor.statistics())
    except Exception as error:  # noqa: BLE001 - a bad figure must not hide the others
        return {"statistics_error": f"{type(error).__name__}: {error}"}
