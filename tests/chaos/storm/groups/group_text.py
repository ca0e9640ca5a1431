"""What a group is at on a vchannel, for the text of a violation."""

from broker.client import Client, TidemarkError
from broker.client.groups.consumer_group import ConsumerGroup
from broker.model.groups.consumer_group import MemberView
from tests.chaos.storm.history import pchannel_of

SPANS_SHOWN = 5


async def told_of(group: ConsumerGroup, log: Client, vchannel: str) -> str:
    """Its floor, who is there with which leases, and who owns the pchannel; or why nobody knows."""
    try:
        (view,) = await group.describe(vchannel)
        channels = {it.name: it for it in await log.admin.channels()}
    except TidemarkError as error:
        return f"not described: {type(error).__name__}: {error}"
    it, at = view.group, channels.get(pchannel_of(vchannel))
    members = [_member(each, it.lease_ms) for each in view.members] or ["no members"]
    acked = ", ".join(map(str, it.acked[:SPANS_SHOWN]))
    told = [
        f"floor {it.floor}, {len(it.acked)} spans acknowledged above it ({acked})",
        f"tried {it.tried[:SPANS_SHOWN]}, dying {it.dying[:SPANS_SHOWN]}, trouble {view.trouble!r}",
        *members,
    ]
    if at is not None:
        told.append(
            f"{at.name} is {at.state} to node {at.node_id} at term {at.term}, closed up to tick"
            f" {at.closed_tick}, {at.open_txns} transactions are open, {at.prepared_txns} prepared"
        )
    return "; ".join(told)


def _member(it: MemberView, lease_ms: int) -> str:
    text = f"{it.name} owns {it.owns} slots, is {'' if it.waiting else 'not '}waiting"
    text += f" and has {it.leases} leases ({it.ran_out} ran out)"
    if not it.leases:
        return text
    return f"{text}, the oldest for {it.oldest_s:.1f} s of {lease_ms / 1000:.1f} s"
