"""The page of health: what is wrong, and what runs where."""

from broker.cli.show.figures import size_text
from broker.cli.show.tables import moment
from broker.cli.top.look import Look
from broker.cli.top.section import (
    Page,
    PageRow,
    Section,
    name_column,
    size_column,
    text_column,
)

NO_TROUBLE = (
    "Nothing is wrong: every pchannel is served and takes appends, and no damaged place was read."
)
NOBODY_HOLDS = "Nobody keeps retention from removing anything."
NOTES = (
    "trouble: pchannels that nobody serves or that refuse appends, and damaged places of the log",
    "holds: whom retention waits for, and how much that keeps; passed: it lost messages",
    "`tidemark health` prints the same, with exit code 1 unless the broker is healthy",
)


def health_page(look: Look) -> Page:
    """Trouble first, then who holds the log, then facts."""
    return Page("health", (trouble_section(look), held_section(look), fact_section(look)), NOTES)


def trouble_section(look: Look) -> Section:
    """What is not served or refuses appends, damaged places, and calls that were not answered."""
    health = look.broker.health
    rows = [PageRow((it.name, it.state, it.cause), odd=True) for it in health.troubles]
    for it in health.damages:
        met = "skipped" if it.skipped else "refused"
        place = f"{it.file}: damaged at byte {it.offset}: {it.reason}"
        rows.append(PageRow((it.pchannel, f"damage {met} {it.times}x", place), odd=True))
    if health.damages_unlisted:
        more = f"damage in places not listed was met {health.damages_unlisted:,} times"
        rows.append(PageRow(("more", "damage", more), odd=True))
    if health.consumption_paused:
        how = "new consumers wait until `tidemark consumption resume`"
        rows.append(PageRow(("consumption", "paused", how), odd=True))
    rows += [PageRow(("broker", "warning", it), odd=True) for it in health.warnings]
    for name, error in look.broker.missing.items():
        rows.append(PageRow((name, "no answer", error), odd=True))
    columns = (name_column("t", "trouble with"), text_column("what"), text_column("cause"))
    return Section("trouble", columns, rows, NO_TROUBLE)


def held_section(look: Look) -> Section:
    """Who keeps retention from removing what of a pchannel; those who were passed first."""
    health = look.broker.health
    rows = [
        PageRow((f"{it.kind} {it.name}", it.pchannel, it.bytes, f"passed by {it.cause}"), odd=True)
        for it in health.passed
    ]
    for held in sorted(health.holders, key=lambda it: -it.bytes):
        limits = [] if held.bytes_max is None else [size_text(held.bytes_max)]
        limits += [] if held.until_ms is None else [moment(held.until_ms)]
        until = f"until {' or '.join(limits)}" if limits else "no limit"
        rows.append(PageRow((f"{held.kind} {held.name}", held.pchannel, held.bytes, until)))
    columns = (
        name_column("h", "holder"),
        name_column("", "pchannel"),
        size_column("d", "held"),
        text_column("limit"),
    )
    return Section("holds", columns, rows, NOBODY_HOLDS)


def fact_section(look: Look) -> Section:
    """Facts about the server that answers."""
    it = look.broker.health
    facts = {
        "state": it.state,
        "version": it.version,
        "cluster": it.cluster,
        "data folder": it.data,
        "process": f"{it.pid}, node {it.node_id}" if it.node_id else f"{it.pid}, the coordinator",
        "started": moment(it.started_ms),
        "pchannels": f"{it.channels_open} of {it.channels_total} are served and take appends",
        "actors": f"{len(look.broker.actors)}, restarted"
        f" {sum(each.restarts for each in look.broker.actors)} times",
    }
    rows = [PageRow(pair) for pair in facts.items()]
    return Section("broker", (name_column("", "broker"), text_column("fact")), rows, "")
