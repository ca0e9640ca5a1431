"""Bugs of purges, for `tests.chaos.storm.sabotages`."""

from collections.abc import Sequence
from typing import Any

from broker.model.ids import MessageId, TimeTick
from broker.node.space import purging, space_pass, unheld
from broker.ports.wal import Log


def forgets_holds() -> Sequence[tuple[Any, str, Any]]:
    """What a group has not acknowledged is purged, and given back."""

    async def nobody(*_: object) -> Sequence[Any]:
        return ()

    return [
        (purging, "needs_of", nobody),
        (unheld, "needs_of", nobody),
        (space_pass, "holds_on", nobody),
    ]


def purges_an_open_transaction() -> Sequence[tuple[Any, str, Any]]:
    """The purge is not refused, and its messages go with all that has smaller ids."""

    async def as_if_none_were_open(log: Log, tick: TimeTick) -> MessageId:
        return await log.seek_tick(TimeTick(tick + 1))

    return [
        (purging, "_refuse_open", lambda *_: None),
        (unheld, "_before_open", lambda _, __, upto: (upto, [])),
        (purging, "behind_tick", as_if_none_were_open),
    ]
