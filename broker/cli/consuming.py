"""`tidemark consume`: writes messages to stdout, one per line, until the pipe is closed."""

import json
import select
import sys
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio

from broker.cli.session import USAGE, fail, with_client
from broker.cli.standard_streams import end_on_closed_pipe
from broker.client import Client, Received, TidemarkError
from broker.client.errors import BadTarget
from broker.client.net.until_first import until_first
from broker.client.read.start import Start

LOOK_EVERY_S = 0.2
PAUSED = (
    "consumption is paused: waiting for `tidemark consumption resume`; pass --ignore-pause to"
    " read now"
)


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """What to read and how to write it."""

    target: str
    start: str
    limit: int | None
    until_now: bool
    raw: bool
    ignore_pause: bool = False


def consume_messages(server: str, options: ConsumeOptions) -> None:
    """Write messages until the limit, Ctrl-C or a closed pipe; each of them is a success."""
    start = _start(options.start)
    line = _raw_line if options.raw else _json_line

    async def consume(client: Client) -> None:
        await until_first(lambda: write_all(client), _reader_gone, lambda: warn_of_pause(client))

    async def warn_of_pause(client: Client) -> None:
        if not options.ignore_pause:
            await _warn_of_pause(client)
        # It must not return: `until_first` would end the reading, too.
        await anyio.sleep_forever()

    async def write_all(client: Client) -> None:
        left = options.limit
        until: Any = "now" if options.until_now else None
        if isinstance(start, int):
            await _refuse_id_of_many(client, options.target)
        ignore = options.ignore_pause
        read = client.read(options.target, start=start, until=until, ignore_pause=ignore)
        async with read as reader:
            async for batch in reader:
                messages = batch.messages[:left]
                _write(line(it) for it in messages)
                if left is not None:
                    left -= len(messages)
                    if left == 0:
                        return

    with end_on_closed_pipe():
        with_client(server, consume, interrupted=0)


async def _warn_of_pause(client: Client) -> None:
    """Warn when consumption is paused; the reader itself reports a server that is unreachable."""
    with suppress(TidemarkError):
        if (await client.admin.health()).consumption_paused:
            sys.stderr.write(f"tidemark: {PAUSED}\n")


async def _refuse_id_of_many(client: Client, target: str) -> None:
    if "-" in target:  # a channel: no collection's name has one
        return
    vchannels = (await client.collections.get(target)).vchannels
    if len(vchannels) > 1:
        raise BadTarget(
            f"--from: a message ID belongs to one vchannel; name one instead of {target!r}:"
            f" {', '.join(vchannels)}"
        )


async def _reader_gone() -> None:
    """Return when stdout is closed; else `consume | head -1` would wait for the next message."""
    poll = select.poll()
    # POLLERR and POLLHUP are reported whatever the mask; with POLLOUT the poll would always
    # succeed.
    poll.register(sys.stdout.fileno(), 0)
    while not poll.poll(0):  # noqa: ASYNC110 - no event exists for this; the poll reports errors only
        await anyio.sleep(LOOK_EVERY_S)


def _start(text: str) -> Start:
    """The start that --from names: `all`, `latest`, an ID or `tick:N`."""
    if text == "all":
        return "all"
    if text == "latest":
        return "latest"
    if text.isdecimal() and int(text) < 1 << 63:
        return int(text)
    word, _, number = text.partition(":")
    if word == "tick" and number.isdecimal() and int(number) < 1 << 64:
        return ("tick", int(number))
    return fail(f"--from {text!r} is not a start; use all, latest, a message ID or tick:N", USAGE)


def _write(lines: Iterable[bytes]) -> None:
    out = sys.stdout.buffer
    out.writelines(lines)
    # Per batch, because a reader that waits for the next message must have all earlier ones.
    out.flush()


def _raw_line(message: Received) -> bytes:
    return message.payload + b"\n"


def _json_line(message: Received) -> bytes:
    fields: dict[str, Any] = {
        "collection": message.collection,
        "vchannel": message.vchannel,
        "id": message.id,
        "tick": message.tick,
        "timestamp_ms": message.timestamp_ms,
        "type": message.type,
    }
    if message.key is not None:
        fields |= _text("key", message.key)
    fields |= _text("payload", message.payload)
    if message.properties:
        fields["properties"] = message.properties
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _text(name: str, value: bytes) -> dict[str, str]:
    """Text as it is; other bytes in base64, in a field with the suffix _base64."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode()}
