"""The reader, a process of its own: writes each pack as one line, with the position to go on from.

    python -m runs.msgstream_demo.pack_reader SERVER FILE

A line is the checkpoint and what it covers at once, so a kill loses or repeats nothing: a line
that was cut short is not counted.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from broker.client import connect
from broker.msgstream import DeleteMsg, InsertMsg, MsgPack, MsgPosition, TidemarkMsgStreamFactory
from runs.msgstream_demo.proxy import COLLECTION
from runs.msgstream_demo.write_node import SENDER


def main() -> None:
    """Read until the process is ended."""
    server, path = sys.argv[1:]
    logging.getLogger("tidemark.msgstream").setLevel(logging.ERROR)  # it tells of a slow machine
    before = lines_of(Path(path))
    # A line that the kill cut short is written again.
    Path(path).write_text("".join([json.dumps(it) + "\n" for it in before]), encoding="utf-8")
    with Path(path).open("a", encoding="utf-8") as file:
        asyncio.run(read(server, before, file))


async def read(server: str, before: Sequence[Mapping[str, Any]], file: TextIO) -> None:
    """Continue at the last whole line."""
    async with connect(server) as log:
        stream = TidemarkMsgStreamFactory(log, SENDER).new_tt_msg_stream()
        await stream.as_consumer([COLLECTION], "reader")
        if before:
            stored = [bytes.fromhex(it) for it in before[-1]["ends"]]
            await stream.seek([MsgPosition.parse(it) for it in stored])
        await stream.start()
        async for pack in stream:
            file.write(json.dumps(line_of(pack)) + "\n")
            file.flush()


def line_of(pack: MsgPack) -> dict[str, Any]:
    """A pack as a line of the file."""
    return {
        "begin": pack.begin_ts,
        "end": pack.end_ts,
        "inserted": [
            id for it in pack.msgs if isinstance(it, InsertMsg) for id in it.body.row_i_ds
        ],
        "deleted": [key for it in pack.msgs if isinstance(it, DeleteMsg) for key in it.keys],
        "ends": [bytes(it).hex() for it in pack.end_positions],
    }


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The packs that were written whole."""
    if not path.exists():
        return []
    *whole, _ = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(it) for it in whole]


if __name__ == "__main__":
    main()
