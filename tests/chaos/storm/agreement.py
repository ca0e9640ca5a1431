"""Definitions agree: the table, the control channel, the vchannels, and what callers were told.

Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos.storm.checkers import Violation
from tests.chaos.storm.ddl_history import About, Change, DdlHistory, Request, Told, fold
from tests.chaos.storm.history import History

DEFINITION = "definition"
"""Kinds of violations begin so; their payloads are the names of collections."""


def ddl_agrees(history: History) -> Iterator[Violation]:
    """Each answered change is there once and no refused one is, in an order that allows them all.

    The table is what the control channel leads to, and each change is on the vchannels it names.
    """
    ddl = history.ddl
    yield from _answers(ddl)
    yield from _times(ddl)
    table, wrong = fold(ddl.control)
    for change, why in wrong:
        yield _violation("invalid", f"{change}, but {why}", change.about)
    for name in sorted({*table, *(ddl.table or {})} if ddl.table is not None else ()):
        assert ddl.table is not None
        if table.get(name) != ddl.table.get(name):
            text = f"the control channel leads to {table.get(name)}, there is {ddl.table.get(name)}"
            yield _violation("differs", f"{name}: {text}", About("", (name,)))
    yield from _places(ddl)


def _answers(ddl: DdlHistory) -> Iterator[Violation]:
    """Those of one sort and names follow each other, so each answer has its own change."""
    found, asked = defaultdict[About, list[Change]](list), defaultdict[About, list[Request]](list)
    for change in ddl.control:
        found[change.about].append(change)
    for request in ddl.requests:
        asked[request.about].append(request)
    for about, requests in asked.items():
        changes, taken = found[about], set[int]()
        for request in requests:
            if request.told is not Told.DONE:
                continue
            mine = change_of(request, changes)
            if mine is None:
                yield _violation("lost", f"{request} is not on the control channel", about)
            elif mine.broadcast in taken:
                yield _violation("lost", f"{request} shares {mine} with another one", about)
            else:
                taken.add(mine.broadcast)
        told = Counter(it.told for it in requests)
        if len(changes) > told[Told.DONE] + told[Told.OPEN]:
            text = f"{about}: {len(changes)} changes, and callers were told {dict(told)}"
            yield _violation("not refused", text, about)


def change_of(request: Request, changes: list[Change]) -> Change | None:
    """The change that was answered so, of those of its sort and names.

    The answer may tell where a second copy of it is, behind the first; no other change of these
    names comes between the two.
    """
    before = [it for it in changes if it.tick <= request.tick]
    if not before or (request.id and before[-1].id not in (0, request.id)):
        return None
    return before[-1]


def _times(ddl: DdlHistory) -> Iterator[Violation]:
    """Of the same names, what began after another had been answered lies behind it."""
    newest: dict[tuple[str, ...], Request] = {}
    done = [it for it in ddl.requests if it.told is Told.DONE]
    events = [(it.began_s, 1, it) for it in done] + [(it.ended_s, 0, it) for it in done]
    for _, begins, request in sorted(events, key=lambda it: it[:2]):
        names = request.about.names
        before = newest.get(names)
        if not begins:
            if before is None or before.tick < request.tick:
                newest[names] = request
        elif before is not None and before.tick >= request.tick:
            text = f"{request} began after {before} was done"
            yield _violation("order", text, request.about)


def _places(ddl: DdlHistory) -> Iterator[Violation]:
    """On each vchannel the changes that name it, in the order of the control channel.

    Of a collection that was dropped they may be given back to the disk.
    """
    live = {it for each in (ddl.table or {}).values() for it in each.vchannels}
    wanted = defaultdict[str, list[Change]](list)
    for change in ddl.control:
        for name in change.vchannels:
            wanted[name].append(change)
    for name in sorted({*wanted, *ddl.copies}):
        here, there = ddl.copies.get(name, []), [it.broadcast for it in wanted[name]]
        gone = ddl.table is not None and name not in live
        if here != (there if not gone else [it for it in there if it in here]):
            concerned = [it for it in ddl.control if it.broadcast in {*here, *there}]
            names = {it.about.names[0] for it in concerned}
            text = f"{name} has the broadcasts {here}, the control channel has {there} for it"
            yield _violation("elsewhere", text, About("", tuple(sorted(names))))


def _violation(what: str, text: str, about: About) -> Violation:
    names = tuple(it.encode() for it in about.names)
    return Violation(f"{DEFINITION} {what}", text, payloads=names)
