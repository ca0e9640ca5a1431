"""How far the retention of a collection may purge a vchannel now; who holds it, who is passed."""

from dataclasses import dataclass

from broker.core.space.removal import exceeded
from broker.model.ids import TimeTick
from broker.model.retention.holders import HolderKind, Holding, PassCause, Passed
from broker.model.retention.purge import Purge
from broker.node.space.purging import has_messages
from broker.node.space.space_holds import Need, needs_of
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.node.truncation import behind_tick


@dataclass(frozen=True, slots=True)
class Unheld:
    """Up to `upto` nobody within its limits needs anything."""

    upto: TimeTick
    holders: tuple[Holding, ...] = ()
    passed: tuple[Passed, ...] = ()


async def unheld(
    channel: OpenChannel, node: NodeRuntime, vchannel: str, upto: TimeTick, now_ms: int
) -> Unheld:
    """As far as it may be purged up to a tick. Raises Refused, TimeoutError, WalError."""
    found, holders = _before_open(channel, vchannel, upto)
    next_id = await channel.log.seek_tick(TimeTick(upto + 1))
    purge = Purge(vchannel, upto, next_id, await behind_tick(channel.log, upto))
    passed: list[Passed] = []
    for need in await needs_of(channel, node, vchannel, next_id):
        if need.read_to >= upto:
            continue
        if not await has_messages(channel, purge, need.hold.from_id, need.read_to):
            continue
        holding = _holding(channel, need)
        cause = exceeded(holding, now_ms)
        if cause is None:
            holders.append(holding)
            found = min(found, need.read_to)
        elif holding.kind is not HolderKind.READER:
            # A reader that is passed learns it at its next step.
            passed.append(_passed(holding, cause, need.read_to, now_ms))
    lost = tuple(it for it in passed if it.removed_tick < found)
    return Unheld(found, tuple(holders), tuple(_removed(it, found) for it in lost))


def _before_open(
    channel: OpenChannel, vchannel: str, upto: TimeTick
) -> tuple[TimeTick, list[Holding]]:
    """Before the begin of every transaction that is open."""
    holders: list[Holding] = []
    transactions = channel.transactions
    for view in (*transactions.views(), *transactions.unstored_ends()):
        # The id of a transaction is the tick of its begin.
        begin = TimeTick(view.context.id)
        if view.vchannel == vchannel and begin <= upto:
            upto = TimeTick(begin - 1)
            name = str(view.context.id) if view.stage is None else f"staged {view.stage}"
            holders.append(Holding(HolderKind.TRANSACTION, name, 0))
    return upto, holders


def _holding(channel: OpenChannel, need: Need) -> Holding:
    hold = need.hold
    size = sum(it.size_bytes for it in channel.log.segments() if it.next_id > hold.from_id)
    return Holding(hold.kind, hold.name, size, hold.bytes_max, hold.until_ms)


def _passed(it: Holding, cause: PassCause, read_to: TimeTick, now_ms: int) -> Passed:
    limit = it.until_ms if cause is PassCause.TIME else it.bytes_max
    return Passed(it.kind, it.name, cause, it.bytes, limit or 0, read_to, now_ms)


def _removed(it: Passed, upto: TimeTick) -> Passed:
    return Passed(it.kind, it.name, it.cause, it.bytes, it.limit, upto, it.passed_ms)
