"""A history of definitions that is as it should be, and what makes it one that must be rejected."""

from collections.abc import Callable
from dataclasses import replace

from broker.model.ids import CollectionId, PartitionId, VChannelName
from broker.model.master.table_change import (
    AddCollection,
    AddPartition,
    PointAlias,
    RemoveCollection,
    RemovePartition,
)
from tests.chaos.storm.ddl_history import Change, DdlHistory, Defined, Request, Told, about
from tests.chaos.storm.history import History


def good_definitions() -> DdlHistory:
    """A collection is made, gets a partition and an alias, and goes; another one has its name."""
    first, second = (VChannelName("p_1_100v0"),), (VChannelName("p_1_101v0"),)
    default = (("_default", PartitionId(1)),)
    known = CollectionId(100), "ships", ""
    ddl = DdlHistory()
    ddl.control = [
        Change(1, 110, AddCollection("", "ships", CollectionId(100), first, default), first),
        Change(2, 120, AddPartition(*known, "north", PartitionId(2)), first),
        Change(3, 130, PointAlias("", "fleet", CollectionId(100), "ships"), ()),
        Change(4, 140, RemovePartition(*known, "north", PartitionId(2)), first),
        Change(5, 150, RemoveCollection(*known), first),
        Change(6, 160, AddCollection("", "ships", CollectionId(101), second, default), second),
    ]
    ids = (100, 2, 0, 0, 0, 101)
    ddl.requests = [
        Request(it.about, 10.0 * at, 10.0 * at + 5, Told.DONE, id, it.tick)
        for at, (it, id) in enumerate(zip(ddl.control, ids, strict=True))
    ]
    refused = about(AddCollection("", "ships", CollectionId(0), (), ()))
    ddl.requests.append(Request(refused, 11.0, 12.0, Told.REFUSED))
    # The second copy of a change may be what the answer tells.
    ddl.requests[1] = replace(ddl.requests[1], tick=125)
    ddl.copies = {first[0]: [1, 2, 4, 5], second[0]: [6]}
    ddl.table = {"ships": Defined(101, second, dict(default), 1)}
    return ddl


def lose_a_definition(history: History) -> None:
    del history.ddl.control[3]


def answer_twice(history: History) -> None:
    history.ddl.requests.append(replace(history.ddl.requests[1], began_s=16.0, ended_s=17.0))


def define_what_was_refused(history: History) -> None:
    history.ddl.requests[0] = replace(history.ddl.requests[0], told=Told.REFUSED)


def give_another_id(history: History) -> None:
    history.ddl.requests[5] = replace(history.ddl.requests[5], id=99)


def define_twice(history: History) -> None:
    made = history.ddl.control[0]
    assert isinstance(made.change, AddCollection)
    again = replace(made.change, id=CollectionId(102))
    history.ddl.control.insert(1, Change(7, 111, again, ()))
    history.ddl.requests.append(
        Request(made.about, 0.0, 9.0, Told.DONE, 102, 111)  # both were told that it is theirs
    )


def drop_what_is_gone(history: History) -> None:
    history.ddl.control.insert(4, replace(history.ddl.control[3], broadcast=8, tick=145))
    history.ddl.requests.append(replace(history.ddl.requests[3], tick=145, ended_s=36.0))


def count_twice(history: History) -> None:
    assert history.ddl.table is not None
    history.ddl.table["ships"].count = 2


def forget_a_collection(history: History) -> None:
    assert history.ddl.table is not None
    del history.ddl.table["ships"]


def leave_a_vchannel_out(history: History) -> None:
    history.ddl.copies["p_1_101v0"].remove(6)


def announce_in_another_order(history: History) -> None:
    history.ddl.copies["p_1_100v0"] = [1, 4, 2, 5]


def announce_where_nobody_said(history: History) -> None:
    history.ddl.copies["p_1_101v0"].append(3)


def define_against_time(history: History) -> None:
    later = history.ddl.requests[5]
    history.ddl.requests[5] = replace(later, began_s=-3.0, ended_s=-2.0)


PLANTED_DEFINITIONS: list[tuple[Callable[[History], None], str]] = [
    (lose_a_definition, "definition lost"),
    (answer_twice, "definition lost"),
    (define_what_was_refused, "definition not refused"),
    (give_another_id, "definition lost"),
    (define_twice, "definition invalid"),
    (drop_what_is_gone, "definition invalid"),
    (count_twice, "definition differs"),
    (forget_a_collection, "definition differs"),
    (leave_a_vchannel_out, "definition elsewhere"),
    (announce_in_another_order, "definition elsewhere"),
    (announce_where_nobody_said, "definition elsewhere"),
    (define_against_time, "definition order"),
]
