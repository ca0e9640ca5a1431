"""What an Appender must learn from the log before it writes: which transactions are open or ended.

It only reads. Open ones are found wherever they began: the newest record's last confirmed id says
where to look. Ended ones, remembered for clients whose commit was not answered, are found as far
back as one bounded read reaches.
Next: broker/core/transaction.py
"""

import logging

from broker.core.transaction import Transactions
from broker.model.ids import TICK_LOGICAL_BITS, MessageId, TimeTick
from broker.node.limits import NodeLimits
from broker.ports.wal import Corrupt, Log, LogBounds

notes = logging.getLogger("broker.node")

READ_BYTES = 4 * 1024 * 1024
REMEMBERED_MS = (60_000, 10_000, 1_000, 100)
"""How far back ended transactions are looked for: the first that a bounded read can cover."""


async def taken_over(log: Log, limits: NodeLimits) -> Transactions:
    """The transactions as the last writer left them. Raises what the log raises.

    Damage among what is only looked at for ended transactions does not keep a log from opening.
    """
    bounds = log.bounds()
    if bounds.first_id == bounds.next_id:
        return Transactions(limits.txns)
    oldest_open = await _oldest_open(log, bounds)
    try:
        since = min(oldest_open, await _remembered(log, bounds, limits))
        return await _replayed(log, since, bounds, limits)
    except Corrupt as damage:
        notes.warning("transactions that ended before the damage are forgotten: %s", damage)
        return await _replayed(log, oldest_open, bounds, limits)


async def _replayed(
    log: Log, since: MessageId, bounds: LogBounds, limits: NodeLimits
) -> Transactions:
    transactions = Transactions(limits.txns)
    at = since
    while at < bounds.next_id:
        for record in await log.read(at, READ_BYTES):
            transactions.replay(record)
            at = record.next_id
    return transactions


async def _oldest_open(log: Log, bounds: LogBounds) -> MessageId:
    (newest,) = (await log.read(MessageId(bounds.next_id - 1), 1))[-1:]
    return max(bounds.first_id, newest.last_confirmed_id)


async def _remembered(log: Log, bounds: LogBounds, limits: NodeLimits) -> MessageId:
    for age_ms in REMEMBERED_MS:
        tick = TimeTick(max(0, bounds.last_tick - (age_ms << TICK_LOGICAL_BITS)))
        since = await log.seek_tick(tick)
        end = await log.advance(since, bounds.next_id, limits.recovery_bytes_max)
        if end >= bounds.next_id:
            return since
    return bounds.next_id
