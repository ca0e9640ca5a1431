"""A write node: applies the packs of the stream, and reports each tick that it has applied."""

import asyncio

from broker.client import Client
from broker.client.master import TickOrigin
from broker.msgstream import DeleteMsg, InsertMsg, StreamOptions, TidemarkMsgStreamFactory
from runs.msgstream_demo.proxy import COLLECTION

SENDER = StreamOptions(clock="sender")


class WriteNode:
    """`rows`: the flights that it holds now."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.rows: set[int] = set()
        self.late = 0

    async def run(self, log: Client, last: "asyncio.Future[int]") -> None:
        """Apply packs up to the one that ends at the tick `last`, once it is known."""
        stream = TidemarkMsgStreamFactory(log, SENDER).new_tt_msg_stream()
        await stream.as_consumer([COLLECTION], f"write-node-{self.number}")
        await stream.start()
        async for pack in stream:
            for msg in sorted(pack.msgs, key=lambda it: it.begin_ts):
                if isinstance(msg, InsertMsg):
                    self.rows.update(msg.body.row_i_ds)
                elif isinstance(msg, DeleteMsg):
                    self.rows.difference_update([int(it) for it in msg.keys])
            self.late = stream.counters.late
            await log.master.report_time_tick(TickOrigin.WRITE_NODES, self.number, pack.end_ts)
            if last.done() and pack.end_ts >= last.result():
                break
        await stream.close()
