"""The page of work in progress: transactions, commits of batches, broadcasts, locks, barriers."""

from broker.cli.show.tables import natural_order
from broker.cli.top.look import Look
from broker.cli.top.section import (
    UNKNOWN,
    Page,
    PageRow,
    Section,
    count_column,
    name_column,
    size_column,
    span_column,
    text_column,
)
from broker.client import ResourceKey
from broker.client.cluster import ActorInfo
from broker.core.cluster.actor_kinds import kind_of, pchannel_in

SLOW_COMMIT_S = 10.0
"""A commit usually takes about ten milliseconds."""
NO_TXNS = (
    "No transaction is open. `async with log.txn(...)` and `tidemark produce --txn` begin one."
)
NO_COMMITS = "No application has committed a batch. Spark's sink and `log.commit_batch` do."
NO_BROADCASTS = "No broadcast is in progress: all are on every vchannel, and acknowledged."
NO_LOCKS = "No resource key is locked: a broadcast locks its keys until it is acknowledged."
NO_BARRIERS = "No barrier has peers. `log.barrier(NAME)` joins one."
NOTES = (
    "prepared: transactions that wait for the coordinator's decision",
    "staged: transactions of a batch that is not committed yet",
    "commits: by application, the newest batch and the one in progress",
    "acked: vchannels on which the copy of a broadcast has been acknowledged",
    "silent: peers of a barrier whose report is late",
)


def work_page(look: Look) -> Page:
    """What is in progress."""
    sections = (
        transaction_section(look),
        commit_section(look),
        broadcast_section(look),
        lock_section(look),
        barrier_section(look),
    )
    return Page("work", sections, NOTES)


def transaction_section(look: Look) -> Section:
    """One row for each pchannel with open transactions."""
    staged = {
        pchannel_in(it.path): it
        for it in look.broker.actors
        if kind_of(it.path) == "appender" and it.extra.get("staged_txns", "0") != "0"
    }
    rows = [
        PageRow(
            (
                it.name,
                it.open_txns,
                it.open_txn_bytes,
                it.prepared_txns,
                *_staged(look, staged.get(it.name)),
            )
        )
        for it in sorted(look.broker.channels, key=lambda it: natural_order(it.name))
        if it.open_txns
    ]
    columns = (
        name_column("n", "transactions on"),
        count_column("o", "open"),
        size_column("b", "bytes"),
        count_column("d", "prepared"),
        count_column("g", "staged"),
        size_column("y", "staged bytes", 1),
        span_column("l", "oldest staged", 2),
    )
    missing = look.broker.missing.get("channels", NO_TXNS)
    return Section("transactions", columns, rows, missing, order="o", down=True)


def commit_section(look: Look) -> Section:
    """One row for each application; a slow commit is odd."""
    rows = []
    for it in look.broker.commits:
        running_s = it.age_ms / 1000 if it.state else None
        values = (
            it.app,
            it.batch,
            look.since_s(it.done_ms),
            it.under_way,
            it.state or "idle",
            it.txns if it.state else None,
            running_s,
        )
        rows.append(PageRow(values, odd=(running_s or 0) >= SLOW_COMMIT_S))
    columns = (
        name_column("a", "commits of app"),
        count_column("h", "batch"),
        span_column("", "ago", 2),
        count_column("", "next", 1),
        text_column("state"),
        count_column("x", "txns"),
        span_column("f", "for"),
    )
    missing = look.broker.missing.get("commits", NO_COMMITS)
    return Section("commits", columns, rows, missing, order="f", down=True)


def broadcast_section(look: Look) -> Section:
    """Unfinished broadcasts; those in quarantine are odd, with the cause."""
    rows = [
        PageRow(
            (
                it.name or UNKNOWN,
                "quarantine" if it.poison else it.state,
                it.acked,
                it.vchannels,
                _keys(it.keys),
                it.poison or it.last_error or UNKNOWN,
            ),
            odd=bool(it.poison),
        )
        for it in look.broker.broadcasts
    ]
    columns = (
        name_column("", "broadcast"),
        text_column("state"),
        count_column("k", "acked"),
        count_column("", "of"),
        text_column("keys", 1),
        text_column("cause"),
    )
    return Section(
        "broadcasts", columns, rows, look.broker.missing.get("broadcasts", NO_BROADCASTS)
    )


def lock_section(look: Look) -> Section:
    """Broadcasts that hold keys, and those that wait for them, in order of arrival."""
    rows = [
        PageRow((it.owner or UNKNOWN, "holds" if it.held else "waits for", _keys(it.keys)))
        for it in look.broker.locks
    ]
    columns = (name_column("", "locks"), text_column("lock"), text_column("keys"))
    return Section("locks", columns, rows, look.broker.missing.get("locks", NO_LOCKS))


def barrier_section(look: Look) -> Section:
    """What has passed, and who is late."""
    rows = []
    for it in look.broker.barriers:
        late = ", ".join(sorted(it.silent, key=natural_order))
        kind = it.kind.name.lower().replace("_", "-")
        values = (it.name, kind, look.age_s(it.tick), len(it.peers), late or UNKNOWN)
        rows.append(PageRow(values, odd=bool(late)))
    columns = (
        name_column("i", "barrier"),
        text_column("kind"),
        span_column("", "passed"),
        count_column("", "peers"),
        text_column("silent"),
    )
    return Section("barriers", columns, rows, look.broker.missing.get("barriers", NO_BARRIERS))


def _staged(look: Look, it: ActorInfo | None) -> tuple[int | None, int | None, float | None]:
    if it is None:
        return None, None, None
    count, size = int(it.extra["staged_txns"]), int(it.extra["staged_bytes"])
    return count, size, look.age_s(int(it.extra["staged_since"]))


def _keys(keys: "tuple[ResourceKey, ...]") -> str:
    return " ".join(map(str, keys)) or UNKNOWN
