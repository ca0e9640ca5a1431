"""What callers were told of changes of definitions, and what the logs and the table have of them.

Values only, and the table that a sequence of changes must lead to.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from broker.model.master.table_change import (
    AddCollection,
    AddPartition,
    PointAlias,
    RemoveAlias,
    RemoveCollection,
    RemovePartition,
    TableChange,
)


class Told(Enum):
    """What a caller was told. OPEN: nobody knows."""

    DONE = "done"
    REFUSED = "refused"
    OPEN = "open"


class About(NamedTuple):
    """The sort of a change and the names that it is about, the collection's first."""

    sort: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One change that was asked for. `id`: what was created; 0 for none; `tick`: as answered."""

    about: About
    began_s: float
    ended_s: float
    told: Told
    id: int = 0
    tick: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One copy on the control channel: the first of its broadcast, which goes to `vchannels`."""

    broadcast: int
    tick: int
    change: TableChange
    vchannels: tuple[str, ...]

    @property
    def about(self) -> About:
        return about(self.change)

    @property
    def id(self) -> int:
        """Of what it creates; 0: nothing."""
        return self.change.id if isinstance(self.change, AddCollection | AddPartition) else 0


@dataclass(slots=True)
class Defined:
    """One collection. `count`: of its partitions, as the table counts them."""

    id: int
    vchannels: tuple[str, ...]
    partitions: dict[str, int]
    count: int
    aliases: set[str] = field(default_factory=set)


Table = dict[str, Defined]
"""By name. Databases and indexes are not in it."""


@dataclass(slots=True)
class DdlHistory:
    """`control`: in the order of the log. `copies`: the broadcasts on each other vchannel.

    `table`: what the master shows when all is over; None when it was not asked.
    """

    requests: list[Request] = field(default_factory=list)
    control: list[Change] = field(default_factory=list)
    copies: dict[str, list[int]] = field(default_factory=dict)
    table: Table | None = None

    def only(self, names: Collection[str]) -> "DdlHistory":
        """What it has of these collections and aliases."""
        control = [it for it in self.control if not {*it.about.names}.isdisjoint(names)]
        kept = {it.broadcast for it in control}
        return replace(
            self,
            requests=[it for it in self.requests if not {*it.about.names}.isdisjoint(names)],
            control=control,
            copies={
                vchannel: [it for it in found if it in kept]
                for vchannel, found in self.copies.items()
                if kept.intersection(found)
            },
            table=None
            if self.table is None
            else {name: it for name, it in self.table.items() if name in names},
        )

    def lines(self) -> Iterator[str]:
        """What happened, line by line."""
        for asked in sorted(self.requests, key=lambda it: it.began_s):
            yield str(asked)
        yield from map(str, self.control)
        yield from (f"{name} has {found}" for name, found in self.copies.items())
        yield from (f"the table: {name} {it}" for name, it in (self.table or {}).items())


def about(change: TableChange) -> About:
    """Which requests this may be the change of."""
    match change:
        case AddCollection() | RemoveCollection():
            names: tuple[str, ...] = (change.name,)
        case AddPartition() | RemovePartition():
            names = change.collection_name, change.name
        case PointAlias():
            names = change.collection_name, change.alias
        case RemoveAlias():
            names = (change.alias,)
        case _:
            names = (getattr(change, "name", ""),)
    return About(type(change).__name__, names)


class Contradiction(Exception):
    """A change that must have been refused when it was its turn."""


def fold(changes: Sequence[Change]) -> tuple[Table, list[tuple[Change, str]]]:
    """The table after all changes, and those that contradict what there was, with the reason.

    Stricter than the master: it was to refuse such changes before they were recorded. But the drop
    of an alias and that of its collection wait for different names: both may be recorded when each
    was right, and the alias is gone either way.
    """
    table, wrong, gone = Table(), list[tuple[Change, str]](), set[str]()
    for each in changes:
        match each.change:
            case RemoveCollection(name=name) if name in table:
                gone |= table[name].aliases
            case PointAlias(alias=alias):
                gone.discard(alias)
            case RemoveAlias(alias=alias) if alias in gone and _owner(table, alias) is None:
                gone.discard(alias)
                continue
            case _:
                pass
        try:
            _apply(table, each.change)
        except Contradiction as error:
            wrong.append((each, str(error)))
    return table, wrong


def _apply(table: Table, change: TableChange) -> None:
    match change:
        case AddCollection(_, name, id, vchannels, partitions):
            _require(name not in table, f"there is a collection {name!r}")
            _require(not _owner(table, name), f"{name!r} is an alias")
            known = dict(partitions)
            table[name] = Defined(id, vchannels, {**known}, len(known))
        case RemoveCollection(id, name):
            _existing(table, name, id)
            del table[name]
        case AddPartition(id, name, _, partition, partition_id):
            found = _existing(table, name, id)
            _require(partition not in found.partitions, f"there is a partition {partition!r}")
            found.partitions[partition] = partition_id
            found.count += 1
        case RemovePartition(id, name, _, partition, partition_id):
            found = _existing(table, name, id)
            _require(
                found.partitions.pop(partition, None) == partition_id,
                f"there is no partition {partition!r} with id {partition_id}",
            )
            found.count -= 1
        case PointAlias(_, alias, id, name):
            found = _existing(table, name, id)
            _require(alias not in table, f"{alias!r} is a collection")
            for each in table.values():
                each.aliases.discard(alias)
            found.aliases.add(alias)
        case RemoveAlias(_, alias):
            owner = _owner(table, alias)
            _require(owner is not None, f"there is no alias {alias!r}")
            assert owner is not None
            owner.aliases.discard(alias)
        case _:
            pass


def _existing(table: Table, name: str, id: int) -> Defined:
    found = table.get(name)
    if found is None or found.id != id:
        raise Contradiction(f"there is no collection {name!r} with id {id}: {found}")
    return found


def _owner(table: Table, alias: str) -> Defined | None:
    return next((it for it in table.values() if alias in it.aliases), None)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Contradiction(otherwise)
