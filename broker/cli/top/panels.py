"""The contents of each panel: rows, lags, sums over subtrees, formatted numbers. Draws nothing."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.cli.show.tables import natural_order
from broker.cli.top.broker_state import BrokerState, Rates
from broker.client.cluster import ActorInfo, ChannelInfo
from broker.core.cluster.actor_kinds import kind_of, pchannel_in

TICK_LOGICAL_BITS = 18
GONE = "-"
SLOW_COMMIT_MS = 10_000
"""A commit usually takes about ten milliseconds."""


@dataclass(frozen=True, slots=True)
class ActorRow:
    """An actor, or a supervisor with sums over all actors below it."""

    path: str
    name: str
    depth: int
    is_leaf: bool
    term: int
    state: str
    mailbox: str
    restarts: int
    rate: float
    why: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A table. `rows`: by key, in order. `odd`: keys of the rows to highlight."""

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]
    odd: frozenset[str] = frozenset()


def actor_rows(broker: BrokerState, rates: Rates) -> list[ActorRow]:
    """The tree of actors: parents before children, siblings in natural order."""
    below: dict[str, list[ActorInfo]] = defaultdict(list)
    for it in broker.actors:
        parts = it.path.split("/")
        for length in range(2, len(parts) + 1):
            below["/".join(parts[:length])].append(it)
    ordered = sorted(broker.actors, key=lambda it: [natural_order(n) for n in it.path.split("/")])
    return [_branch(it, below[it.path], rates) for it in ordered]


def _branch(it: ActorInfo, all_of_it: Sequence[ActorInfo], rates: Rates) -> ActorRow:
    fullest = max(all_of_it, key=lambda other: other.mailbox_depth)
    return ActorRow(
        path=it.path,
        name=it.path.rpartition("/")[2],
        depth=it.path.count("/") - 1,
        is_leaf=it.kind == "actor",
        term=it.term,
        state=it.state,
        mailbox=f"{fullest.mailbox_depth}/{fullest.mailbox_bound}",
        restarts=sum(other.restarts for other in all_of_it),
        rate=sum(rates.handled.get(other.path, 0.0) for other in all_of_it if _works(other)),
        why=it.extra.get("last_error", ""),
    )


def _works(it: ActorInfo) -> bool:
    return it.kind == "actor"


def channel_panel(broker: BrokerState, rates: Rates, *, wide: bool) -> Panel:
    """Channels: age of the closed tick, lag of the slowest consumer, transactions, size."""
    lags, readers = _lags(broker)
    staged = _staged(broker)
    rows, odd = {}, set()
    troubled = {it.name: it.state for it in broker.health.troubles}
    for it in sorted(broker.channels, key=lambda it: natural_order(it.name)):
        fresh = age(broker, it.closed_tick)
        row: tuple[str, ...] = (
            it.name,
            str(it.term),
            troubled.get(it.name) or fresh,
            f"{lags[it.name]:,}" if it.name in lags else GONE,
            f"{it.open_txns:,}",
            size(it.size_bytes),
            rate(rates.appended.get(it.name)),
        )
        more = (*_wide(it, readers.get(it.name, 0)), staged.get(it.name, GONE))
        rows[it.name] = (*row, *more) if wide else row
        if it.name in troubled:
            odd.add(it.name)
    columns = ("channel", "term", "closed", "lag", "txns", "size", "msg/s")
    return Panel(
        (*columns, "readers", "ids", "node", "shards", "staged") if wide else columns,
        rows,
        frozenset(odd),
    )


def _wide(it: ChannelInfo, readers: int) -> tuple[str, ...]:
    ids = f"{it.first_id:,}..{it.next_id - 1:,}" if it.next_id > it.first_id else "none"
    shards = f"{len(it.vchannels)}{' + control' if it.is_control_host else ''}"
    return (str(readers), ids, f"{it.node_id} {it.address}", shards)


def _staged(broker: BrokerState) -> dict[str, str]:
    """Staged transactions of each channel: number, bytes, age of the oldest."""
    found = {}
    for it in broker.actors:
        txns = int(it.extra.get("staged_txns", "0"))
        if txns:
            bytes_, since = int(it.extra["staged_bytes"]), int(it.extra["staged_since"])
            found[pchannel_in(it.path)] = f"{txns:,}, {size(bytes_)}, {age(broker, since)}"
    return found


def _lags(broker: BrokerState) -> tuple[dict[str, int], dict[str, int]]:
    """By channel: the lag of the slowest consumer in messages, and the number of consumers."""
    ends = {it.name: it.next_id for it in broker.channels}
    lags: dict[str, int] = {}
    readers: dict[str, int] = defaultdict(int)
    for it in broker.actors:
        name = pchannel_in(it.path)
        if kind_of(it.path) == "scanner" and "next_id" in it.extra and name in ends:
            # Channels and actors are read at slightly different times, so a reader may seem to be
            # ahead.
            behind = max(0, ends[name] - int(it.extra["next_id"]))
            lags[name] = max(lags.get(name, 0), behind)
            readers[name] += 1
    return lags, readers


def barrier_panel(broker: BrokerState) -> Panel:
    """What has passed, and who is late."""
    rows, odd = {}, set()
    for it in broker.barriers:
        key = f"{it.kind.name} {it.name}"
        kind = it.kind.name.lower().replace("_", "-")
        late = ", ".join(sorted(it.silent, key=natural_order))
        rows[key] = (it.name, kind, age(broker, it.tick), str(len(it.peers)), late or GONE)
        if late:
            odd.add(key)
    return Panel(("barrier", "kind", "passed", "peers", "silent"), rows, frozenset(odd))


def broadcast_panel(broker: BrokerState) -> Panel:
    """Unfinished broadcasts; those in quarantine are odd, with the cause."""
    rows, odd = {}, set()
    for number, it in enumerate(broker.broadcasts):
        keys = " ".join(f"{key.domain.name}:{key.key}" for key in it.keys)
        key = it.name or f"waiting {number}"
        state = "quarantine" if it.poison else it.state
        why = it.poison or it.last_error or GONE
        rows[key] = (it.name or GONE, state, f"{it.acked}/{it.vchannels}", keys, why)
        if it.poison:
            odd.add(key)
    return Panel(("broadcast", "state", "acked", "keys", "cause"), rows, frozenset(odd))


def commit_panel(broker: BrokerState) -> Panel:
    """Commits in progress; slow ones are odd."""
    pending = {it.app: it for it in broker.commits if it.state}
    rows = {
        app: (app, str(it.under_way), it.state, f"{it.txns:,}", f"{it.age_ms / 1000:.1f} s")
        for app, it in pending.items()
    }
    slow = frozenset([app for app, it in pending.items() if it.age_ms >= SLOW_COMMIT_MS])
    return Panel(("app", "batch", "commit", "txns", "for"), rows, slow)


def lock_panel(broker: BrokerState) -> Panel:
    """Broadcasts that hold keys, and those that wait for them."""
    rows = {}
    for number, it in enumerate(broker.locks):
        keys = " ".join(f"{key.domain.name}:{key.key}" for key in it.keys)
        rows[str(number)] = (it.owner or GONE, "holds" if it.held else "waits", keys)
    return Panel(("broadcast", "lock", "keys"), rows)


def trouble_panel(broker: BrokerState) -> Panel:
    """Channels that are not served or refuse appends, and damaged places."""
    rows = {it.name: (it.name, it.state, it.cause) for it in broker.health.troubles}
    for it in broker.health.damages:
        told = "skipped" if it.skipped else "refused"
        place = f"{it.file}:{it.offset}"
        rows[place] = (it.pchannel, f"damage {told} x{it.times}", f"{place} {it.reason}")
    return Panel(("channel", "trouble", "cause"), rows, frozenset(rows))


def summary(broker: BrokerState, rates: Rates) -> str:
    """The state of the broker in one line."""
    health = broker.health
    oldest = min((it.closed_tick for it in broker.channels), default=0)
    restarts = sum(it.restarts for it in broker.actors)
    parts = [
        f"{health.channels_open}/{health.channels_total} channels",
        f"{rate(sum(rates.appended.values()) if rates.appended else None)} msg/s",
        f"closed {age(broker, oldest)}" + (" ago" if oldest else ""),
        f"{restarts} restarts",
        f"{len(broker.actors)} actors",
    ]
    if health.consumption_paused:
        parts.insert(1, "consumption paused")
    pending = sum(bool(it.state) for it in broker.commits)
    if pending:
        parts.append(f"{pending} commits in progress")
    quarantine = sum(bool(it.poison) for it in broker.broadcasts)
    if quarantine:
        parts.append(f"{quarantine} in quarantine")
    return " · ".join(parts)


def age(broker: BrokerState, tick: int) -> str:
    """The age of a tick by the local clock."""
    if not tick:
        return "never"
    seconds = _age_ms(broker, tick) / 1000
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"


def _age_ms(broker: BrokerState, tick: int) -> int:
    # The broker's clock may be ahead of the local one.
    return max(0, broker.at_ms - (tick >> TICK_LOGICAL_BITS)) if tick else 0


def size(count: int) -> str:
    """A number of bytes with about three digits."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def rate(per_second: float | None) -> str:
    """A rate; `-` without an earlier state."""
    if per_second is None:
        return GONE
    return f"{per_second:.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"
