"""Looks at a broker that never was, for the tests of what the screen says."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broker.cli.top.broker_state import BrokerState
from broker.client.cluster import ActorInfo, ChannelInfo, ChannelTrouble, Damage, Health

P0, P1 = "by-dev-rootcoord-dml_2", "by-dev-rootcoord-dml_10"
LOG = f"/root/node/channels/{P0}/log"
NOW_MS = 1_800_000_000_000
HEALTH = Health("healthy", "1", 1, "by-dev", "rocksmq", "/d", 1, NOW_MS, 2, 2, (), (), 0, False)


def actor(path: str, kind: str = "actor", **given: Any) -> ActorInfo:
    extra: Mapping[str, str] = given.pop("extra", {})
    plain = ActorInfo(path, 1, kind, "running", 0, 10, 0, 0, extra)
    return replace(plain, **given)


def channel(name: str, **given: Any) -> ChannelInfo:
    closed_tick = (NOW_MS - 200) << 18
    plain = ChannelInfo(
        *(name, 2, "assigned", 1, "a:1", 1, 101, closed_tick, 2048, (), False, 1, 3, 99),
        prepared_txns=0,
        checkpoint_id=100,
        checkpoint_tick=closed_tick,
        checkpoint_lag=1,
        growing_segments=0,
        growing_bytes=0,
        sealed_segments=0,
        read_only=False,
    )
    return replace(plain, **given)


def broker_state(**given: Any) -> BrokerState:
    tree = (
        actor("/root", "supervisor"),
        actor("/root/node", "supervisor"),
        actor("/root/node/channels", "supervisor"),
        actor(f"/root/node/channels/{P0}", "supervisor", restarts=1),
        actor(LOG, "supervisor"),
        actor(f"{LOG}/appender", handled=100, mailbox_depth=7),
        actor(f"{LOG}/scanners", "supervisor"),
        actor(f"{LOG}/scanners/scanner-1", restarts=2, extra={"next_id": "101"}),
        actor(f"{LOG}/scanners/scanner-2", extra={"next_id": "41"}),
    )
    plain = BrokerState(10.0, NOW_MS, HEALTH, (channel(P1), channel(P0)), tree, (), (), (), ())
    return replace(plain, **given)


TROUBLE = (ChannelTrouble(P1, "refusing", "storage refused: full"),)
DAMAGE = (Damage(P0, f"{P0}/1.log", 4096, "checksum", False, 2),)
