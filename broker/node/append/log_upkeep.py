"""What an Appender does to its log between two groups, when another actor asks for it."""

from actors import PlannedRestart
from broker.model.ids import MessageId
from broker.model.retention.policy import Retention
from broker.node.appender_messages import LogUpkeep, SealLog
from broker.ports.wal import Log


class StorageCameBack(PlannedRestart):
    """The storage takes writes again: restart at a new term, which reopens the log."""


async def keep_up(
    log: Log, request: LogUpkeep, kept_id: MessageId, retention: Retention, now_ms: int
) -> None:
    """Drop old segments, or seal the active one; never what a restart needs, from `kept_id` on.

    Raises WalError.
    """
    if isinstance(request, SealLog):
        await log.seal()
    elif not retention.keeps_all:
        # Decided a moment ago, so `kept_id` may be lower by now.
        await log.truncate(min(request.before_id, kept_id), retention, now_ms)
