"""What `tidemark config` prints: stored entries, the outcome of a change, settings in force."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

from broker.cli.session import with_client
from broker.cli.show.output import print_json, show, show_fitted
from broker.cli.show.tables import Column
from broker.client import Client
from broker.client.master.cluster_config import ConfigChanged, ConfigReport
from broker.model.master.live_config import ConfigEntry

SHORT = 60
"""Characters of a value in a table; `--json` has all of it."""


def show_entries(server: str, keys: list[str], prefixes: list[str], *, as_json: bool) -> None:
    """Print the entries of the prefixes, then those of the keys; all of them without either."""

    async def ask(client: Client) -> list[ConfigEntry]:
        found: dict[str, ConfigEntry] = {}
        for prefix in prefixes or ([] if keys else ["/"]):
            found.update({it.key: it for it in await client.config.get_by_prefix(prefix)})
        for it in await client.config.get(keys) if keys else []:
            found.setdefault(it.key, it)
        return list(found.values())

    found = with_client(server, ask)
    if as_json:
        return print_json([asdict(it) for it in found])
    if not found:
        return show("nothing is stored" + (" below this prefix" if prefixes else ""))
    return show_fitted(
        [
            Column("key", [it.key for it in found]),
            Column("value", [_short(it.value) for it in found]),
            Column("revision", [str(it.revision) for it in found], leaves=1),
        ]
    )


def change_entry(
    server: str, key: str, value: str | None, revision: int | None, *, as_json: bool
) -> None:
    """Set or delete an entry, and print where it is in effect."""

    async def change(client: Client) -> ConfigChanged:
        if value is None:
            return await client.config.delete(key, expected_revision=revision)
        return await client.config.set(key, value, expected_revision=revision)

    _changed(server, change, f"{key} {'unset' if value is None else 'set'}", as_json=as_json)


def load_entries(server: str, path: Path, *, as_json: bool) -> None:
    """Set what the file says, and print where it is in effect."""

    async def load(client: Client) -> ConfigChanged:
        return await client.config.load(path)

    _changed(server, load, f"{path} loaded", as_json=as_json)


def show_settings(server: str, *, every: bool, as_json: bool) -> None:
    """Print the settings that differ from those of the start, or all that may change live."""

    async def ask(client: Client) -> ConfigReport:
        return await client.config.settings()

    report = with_client(server, ask)
    found = [it for it in report.settings if every or it.stored is not None]
    problems = [it.problem for it in found]
    if as_json:
        nodes = [{"node": node, "revision": at} for node, at in report.nodes.items()]
        return print_json(
            {
                "revision": report.revision,
                "settings": [asdict(it) for it in found],
                "nodes": nodes,
            }
        )
    if found:
        show_fitted(
            [
                Column("setting", [it.name for it in found]),
                Column("started with", [it.started_with for it in found]),
                Column("stored", ["-" if it.stored is None else it.stored for it in found]),
                Column("in force", [it.in_force for it in found]),
                Column("revision", [str(it.revision or "-") for it in found], leaves=1),
                *([Column("problem", problems)] if any(problems) else []),
            ]
        )
    else:
        show("no setting is stored: every process has those that it was started with")
    late = [node for node, at in report.nodes.items() if at is None or at < report.revision]
    if late:
        show(f"not in effect yet on {_named(late)}")
    return None


def _changed(
    server: str,
    change: Callable[[Client], Awaitable[ConfigChanged]],
    done: str,
    *,
    as_json: bool,
) -> None:
    found = with_client(server, change)
    if as_json:
        return print_json(asdict(found))
    lines = [f"{done} at revision {found.revision}"]
    if found.reached:
        lines.append(f"in effect on {_named(list(found.reached))}")
    if found.behind:
        lines.append(f"not reached: {_named(list(found.behind))}; they follow with their lease")
    return show(*lines)


def _named(nodes: list[int]) -> str:
    return f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"


def _short(value: str) -> str:
    line = value.replace("\n", "\\n")
    return line if len(line) <= SHORT else f"{line[:SHORT]}... ({len(value):,} characters)"
