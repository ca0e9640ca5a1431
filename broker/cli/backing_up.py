"""`tidemark backup` and `tidemark restore`."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from broker.backup.backup_failed import BackupFailed
from broker.backup.checking import check
from broker.backup.live_folder import LiveFolder
from broker.backup.manifest import Manifest, read_manifest
from broker.backup.restoring import Restore
from broker.backup.taking import Backup, BackupFacts
from broker.cli.session import INTERRUPTED, fail, with_client
from broker.client import Client
from broker.client.cluster.server_admin import Health
from broker.data_folder import DataFolder
from broker.model.ids import TICK_LOGICAL_BITS, TimeTick


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """`previous`: link what this backup has already. `data_dir`: None asks the server."""

    target: Path
    previous: Path | None
    data_dir: Path | None


def take_backup(server: str, options: BackupOptions, *, as_json: bool) -> None:
    """Back up a live broker into a new folder; prints what it has. Ends the program on failure."""
    with _failing():
        health = with_client(server, _health)
        folder = DataFolder(options.data_dir or Path(health.data))
        with LiveFolder(folder, health.cluster_id) as live:
            tick = with_client(server, _tick_of(live))
            backup = Backup(live, tick, options.target)
            total = backup.plan(options.previous)
            facts = BackupFacts(health.cluster, _now_ms(), health.version)
            with _progress("copying", total) as progress:
                manifest = backup.take(facts, progress)
    linked = backup.linked_bytes
    _report(manifest, "backed up", options.target, as_json, linked_bytes=linked)


def verify_backup(folder: Path, *, as_json: bool) -> None:
    """Read every byte of a backup, and compare; exit code 1 when a file is missing or changed."""
    with _failing():
        manifest = read_manifest(folder)
        with _progress("verifying", manifest.total_bytes) as progress:
            check(folder, manifest, progress)
    _report(manifest, "whole", folder, as_json)


def restore_backup(backup: Path, data_dir: Path, *, as_json: bool) -> None:
    """Make a data folder from a backup. Ends the program on failure, with nothing left behind."""
    with _failing():
        restore = Restore(backup, data_dir)
        manifest = restore.plan()
        with _progress("restoring", 2 * manifest.total_bytes) as progress:
            restore.run(manifest, _now_ms(), progress)
    _report(manifest, "restored", data_dir, as_json)


async def _health(client: Client) -> Health:
    return await client.admin.health()


def _tick_of(live: LiveFolder) -> Callable[[Client], Any]:
    async def tick(client: Client) -> TimeTick:
        return await live.choose_tick(client.cut_cluster)

    return tick


@contextmanager
def _failing() -> Iterator[None]:
    """Errors become one sentence and exit code 1; Ctrl-C code 130."""
    try:
        yield
    except BackupFailed as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted; nothing is left of it", INTERRUPTED)


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar in bytes, when stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    columns = (*Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda size: bar.advance(task, size)


def _report(
    manifest: Manifest, done: str, folder: Path, as_json: bool, *, linked_bytes: int | None = None
) -> None:
    at_ms = manifest.tick >> TICK_LOGICAL_BITS
    size = manifest.total_bytes
    if as_json:
        fields: dict[str, Any] = {
            "folder": str(folder),
            "cluster": manifest.cluster,
            "tick": manifest.tick,
            "tick_ms": at_ms,
            "messages": manifest.messages,
            "files": len(manifest.files),
            "bytes": size,
        }
        if linked_bytes is not None:
            fields["linked_bytes"] = linked_bytes
        sys.stdout.write(json.dumps(fields) + "\n")
        return
    # Tick 0: no channel has closed a tick, so nothing was ever appended.
    at = "nothing was appended"
    if manifest.tick:
        at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    linked = f" ({linked_bytes:,} of them linked)" if linked_bytes else ""
    sys.stdout.write(
        f"{done}: {folder}, cluster {manifest.cluster} at tick {manifest.tick} ({at}),"
        f" {manifest.messages:,} message ids, {size:,} bytes{linked} in"
        f" {len(manifest.files)} files\n"
    )


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
