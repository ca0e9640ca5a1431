"""What `tidemark group dead` and `redrive` print."""

import sys
from base64 import b64encode

from broker.cli.counted import counted
from broker.cli.session import with_client
from broker.cli.show.output import print_json, show, show_fitted
from broker.cli.show.tables import Column, moment
from broker.client.groups.dead_letters import DeadLetter


def show_dead(server: str, name: str, limit: int, *, as_json: bool) -> None:
    """Print one row for each dead letter, up to `limit`."""
    # One more tells whether there are more.
    found = with_client(server, lambda client: client.group(name).dead(most=limit + 1))
    if len(found) > limit:
        sys.stderr.write(f"tidemark: only the first {limit} are shown; --limit N shows more\n")
    found = found[:limit]
    if as_json:
        return print_json([_fields(it) for it in found])
    if not found:
        return show(f"group {name} has no dead letters")
    show_fitted(
        [
            Column("since", [moment(it.message.timestamp_ms) for it in found]),
            Column("of", [it.origin for it in found]),
            Column("id", [str(it.id) for it in found]),
            Column("deliveries", [str(it.deliveries) for it in found]),
            Column("cause", [it.cause for it in found]),
            Column("payload", [_text(it.message.payload) for it in found], leaves=1),
        ]
    )
    return None


def redrive_dead(server: str, target: str, name: str) -> None:
    """Append the dead letters again, and say how many."""
    count = with_client(server, lambda client: client.group(name).redrive(target))
    show(f"appended {counted(count, 'dead letter')} of group {name} to {target} again")


def _text(payload: bytes) -> str:
    text = payload[:80].decode(errors="replace")
    return "".join([it if it.isprintable() else " " for it in text])


def _fields(letter: DeadLetter) -> dict[str, object]:
    return {
        "cause": letter.cause,
        "deliveries": letter.deliveries,
        "origin": letter.origin,
        "vchannel": letter.vchannel,
        "id": letter.id,
        "tick": letter.tick,
        "marked": letter.marked,
        "properties": dict(letter.properties),
        "payload_base64": b64encode(letter.message.payload).decode(),
    }
