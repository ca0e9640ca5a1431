"""What `tidemark health` prints: facts about the server, then what is wrong."""

from dataclasses import asdict

from rich.table import Table

from broker.cli.session import FAILED, with_client
from broker.cli.show.holder_lines import holder_lines
from broker.cli.show.output import print_json, show
from broker.cli.show.tables import moment
from broker.client.cluster import Health

_LINES = ("troubles", "damages", "damages_unlisted", "holders", "passed", "warnings", "clashes")
"""What is shown as lines below the table."""


def show_health(server: str, *, as_json: bool) -> None:
    """Print facts and troubles; exit code 1 unless the server is healthy."""
    found = with_client(server, lambda client: client.admin.health())
    if as_json:
        print_json(asdict(found))
    else:
        table = Table(show_header=False, box=None)
        for name, value in health_facts(found).items():
            table.add_row(name.removesuffix("_ms"), str(value))
        holders = holder_lines(found.holders, found.passed)
        show(table, *_troubles(found), *holders, *found.warnings, *found.clashes)
    if found.state != "healthy":
        raise SystemExit(FAILED)


def health_facts(found: Health) -> dict[str, object]:
    """The rows of the table, by their names."""
    shown: dict[str, object] = {**asdict(found), "started_ms": moment(found.started_ms)}
    for name in _LINES:
        del shown[name]
    shown["standbys"] = ", ".join(found.standbys)
    if found.node_id:  # a node, or node and coordinator in one process
        del shown["leader"], shown["standbys"]
    elif not found.leader:
        shown["leader"] = "none at the moment"
    return shown


def _troubles(found: Health) -> list[str]:
    lines = [f"{it.name} is {it.state}: {it.cause}" for it in found.troubles]
    for it in found.damages:
        met = "once" if it.times == 1 else f"{it.times:,} times"
        told = "readers skipped it" if it.skipped else "readers were refused"
        lines.append(f"{it.file}: damaged at byte {it.offset}: {it.reason}; met {met}; {told}")
    if found.damages_unlisted:
        lines.append(f"damage in places not listed was met {found.damages_unlisted:,} times")
    return lines
