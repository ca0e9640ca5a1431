"""What `tidemark commits` prints: one row for each application."""

from dataclasses import asdict

from broker.cli.session import with_client
from broker.cli.show.output import print_json, show_fitted
from broker.cli.show.tables import Column, moment
from broker.client import Client
from broker.client.txn import AppCommits

NOTHING = "-"


def show_commits(server: str, *, as_json: bool) -> None:
    """Print one row for each application, sorted by name."""

    async def ask(client: Client) -> list[AppCommits]:
        return await client.commits.list()

    found = with_client(server, ask)
    if as_json:
        return print_json([asdict(it) for it in found])
    return show_fitted(
        [
            Column("app", [it.app for it in found]),
            Column("batch", [_number(it.batch) for it in found]),
            Column("committed", [moment(it.done_ms) if it.done_ms else NOTHING for it in found]),
            Column("in progress", [_number(it.under_way) for it in found]),
            Column("state", [it.state or NOTHING for it in found]),
            Column("txns", [str(it.txns) if it.state else NOTHING for it in found], leaves=1),
            Column("running for", [_since(it) for it in found], leaves=2),
        ]
    )


def _since(it: AppCommits) -> str:
    return f"{it.age_ms / 1000:.1f} s" if it.state else NOTHING


def _number(batch: int | None) -> str:
    return NOTHING if batch is None else str(batch)
