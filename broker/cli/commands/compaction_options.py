"""The options that say how a collection is compacted."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # the client is loaded by the command that needs it
    from broker.client.cluster.kept_limits import CleanupOptions

Compact = Annotated[
    bool | None,
    typer.Option(
        "--compact/--no-compact",
        help="Keep only the newest message of each key. A message with a key and no payload deletes"
        " the key.",
        show_default=False,
    ),
]

CompactionLagMs = Annotated[
    int | None,
    typer.Option(
        metavar="MS", help="With --compact: leave messages alone that are younger. Default 0."
    ),
]

TombstoneMs = Annotated[
    int | None,
    typer.Option(
        metavar="MS",
        help="With --compact: how long a tombstone stays once what it deletes is gone. Default"
        " 86400000, a day.",
    ),
]


def cleanup_of(
    compact: bool | None, lag_ms: int | None, tombstone_ms: int | None
) -> "CleanupOptions":
    """The options that were given."""
    options: CleanupOptions = {"compaction_lag_ms": lag_ms, "tombstone_ms": tombstone_ms}
    if compact is not None:
        options["cleanup"] = "compact" if compact else "delete"
    return options
