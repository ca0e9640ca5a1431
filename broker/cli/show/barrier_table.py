"""What `tidemark barriers` prints: one row for each barrier."""

from collections.abc import Sequence
from dataclasses import asdict

from broker.cli.session import with_client
from broker.cli.show.output import TICK_LOGICAL_BITS, print_json, show_fitted
from broker.cli.show.tables import Column, moment, natural_order, short_moment
from broker.client.cluster import BarrierView


def show_barriers(server: str, *, as_json: bool) -> None:
    """Print one row for each barrier."""
    found = with_client(server, lambda client: client.barriers.list())
    if as_json:
        return print_json([asdict(it) | {"kind": _kind(it)} for it in found])
    passed = [it.tick >> TICK_LOGICAL_BITS for it in found]
    newest = max(passed, default=0)
    return show_fitted(
        [
            Column("barrier", [it.name for it in found]),
            Column("kind", list(map(_kind, found)), leaves=2),
            Column(
                "passed", list(map(moment, passed)), [short_moment(it, newest) for it in passed]
            ),
            Column("peers", [str(len(it.peers)) for it in found], leaves=1),
            Column("waits for", [_lines(it.waits_for) for it in found]),
            Column("silent", [_lines(it.silent) for it in found]),
            Column("removed", [_lines(it.removed) for it in found]),
        ]
    )


def _lines(names: Sequence[str]) -> str:
    return "\n".join(sorted(names, key=natural_order)) or "-"


def _kind(barrier: BarrierView) -> str:
    return barrier.kind.name.lower().replace("_", "-")
