"""The page of consumer groups: how far each is, and who its members are."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from broker.cli.groups.member_states import (
    SLOW,
    member_state,
    seen_of,
    total_lag,
    worst_state,
)
from broker.cli.groups.unsettled_lines import stuck_text
from broker.cli.show.tables import natural_order
from broker.cli.top.broker_state import GROUPS_MAX
from broker.cli.top.look import Look, names_of_vchannels, owner_of
from broker.cli.top.section import (
    Page,
    PageColumn,
    PageRow,
    Section,
    count_column,
    name_column,
    size_column,
    span_column,
    text_column,
)
from broker.model.groups.consumer_group import GroupView
from broker.model.groups.group_mode import GroupMode

NO_GROUPS = (
    "There is no consumer group. `tidemark group create`, `tidemark consume --group` and"
    " `log.group(NAME).join(TARGET)` make one."
)
NO_MEMBERS = "No group has a member. `tidemark consume COLLECTION --group NAME` is one."
NOT_ASKED = "Groups show with the next refresh."
NOTES = (
    "behind, bytes: above the group's position, with what is acknowledged there",
    "lag: the age of the position; all three are counted every 5 s",
    "out: batches that members have and did not acknowledge",
    "again: batches delivered again; dead: messages copied to the dead letters",
    "idle: since somebody was there, or acknowledged something",
    "owns: vchannels, or of each vchannel's 256 slots of keys; of ordered groups",
    "paused takes nothing; slow: a batch has had most of its lease",
    "!: slow, dead letters fail, or a key is stuck; `tidemark group describe` says what to do",
)
SHARED = GroupMode.SHARED
Named = Mapping[tuple[str, str], Sequence[GroupView]]
"""The views of a group on all vchannels of a collection, by the names of both."""


def groups_page(look: Look) -> Page:
    """Groups, then members."""
    named = _named(look)
    return Page("groups", (group_section(look, named), member_section(look, named)), NOTES)


def group_section(look: Look, named: Named | None = None) -> Section:
    """One row for each group of a collection, the one that is furthest behind first."""
    named = _named(look) if named is None else named
    found = look.broker.groups or ()
    title = "group" if len(found) < GROUPS_MAX else f"group, of the first {len(found):,}"
    columns = (
        name_column("g", title),
        name_column("f", "of"),
        count_column("s", "members"),
        count_column("b", "behind"),
        size_column("y", "bytes", 3),
        span_column("l", "lag"),
        count_column("o", "out"),
        count_column("a", "again", 1),
        count_column("d", "dead", 2),
        count_column("x", "expired", 5),
        span_column("i", "idle", 4),
        text_column("trouble", 6),
    )
    rows = [_group_row(look, names, views) for names, views in named.items()]
    return Section("groups", columns, rows, _missing(look, NO_GROUPS), order="b", down=True)


def member_section(look: Look, named: Named | None = None) -> Section:
    """One row for each member of a group, the one whose batch is oldest first."""
    named = _named(look) if named is None else named
    columns: tuple[PageColumn, ...] = (
        name_column("m", "member"),
        name_column("", "of group"),
        text_column("state"),
        count_column("u", "out"),
        span_column("t", "oldest"),
        count_column("", "vchannels", 1),
    )
    rows = [
        row for (group, owner), views in named.items() for row in _member_rows(group, owner, views)
    ]
    # Without an ordered group the others have the room.
    if any(view.group.mode is not SHARED for views in named.values() for view in views):
        columns = (*columns, count_column("", "owns", 2))
    else:
        rows = [PageRow(it.values[:-1], it.odd) for it in rows]
    return Section("members", columns, rows, _missing(look, NO_MEMBERS), order="t", down=True)


def _missing(look: Look, nothing: str) -> str:
    words = nothing if look.broker.groups is not None else NOT_ASKED
    return look.broker.missing.get("groups", words)


def _named(look: Look) -> Named:
    names = names_of_vchannels(look.broker)
    found: defaultdict[tuple[str, str], list[GroupView]] = defaultdict(list)
    for it in look.broker.groups or ():
        found[it.group.key.name, owner_of(it.group.key.vchannel, names)].append(it)
    return dict(sorted(found.items(), key=lambda it: [natural_order(name) for name in it[0]]))


def _group_row(look: Look, names: tuple[str, str], views: Sequence[GroupView]) -> PageRow:
    lag, members = total_lag(views), [(view, it) for view in views for it in view.members]
    trouble = next((it.trouble for it in views if it.trouble), "") or stuck_text(views)
    values = (
        *names,
        len({it.name for _, it in members}),
        lag and lag.messages,
        lag and lag.bytes,
        lag and lag.ms / 1000,
        sum([it.leases for _, it in members]),
        sum([it.redelivered for it in views]),
        sum([it.dead for it in views]),
        sum([it.expired for it in views]),
        look.age_s(seen_of(views)),
        trouble or None,
    )
    slow = any(member_state(view, it) == SLOW for view, it in members)
    return PageRow(values, odd=bool(trouble) or slow)


def _member_rows(group: str, owner: str, views: Sequence[GroupView]) -> list[PageRow]:
    found = defaultdict(list)
    for view in views:
        for it in view.members:
            found[it.name].append((it, member_state(view, it)))
    rows = []
    for name, each in sorted(found.items()):
        state = worst_state([words for _, words in each])
        out, oldest_s = sum([it.leases for it, _ in each]), max([it.oldest_s for it, _ in each])
        owns = None if views[0].group.mode is SHARED else sum([it.owns for it, _ in each])
        old_s = oldest_s if out else None
        values = (name, f"{group} of {owner}", state, out, old_s, len(each), owns)
        rows.append(PageRow(values, odd=state == SLOW))
    return rows
