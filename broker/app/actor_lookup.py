"""The paths of actors in the tree of a process, and the lookup of actors by path."""

from typing import Any

from actors import ActorError, Ref, System
from broker.edge.rpc.proxies import Proxies, Proxy

ROOT = "/root"
ORACLE = f"{ROOT}/coordinator/oracle"
ASSIGNER = f"{ROOT}/coordinator/assigner"
CATALOG = f"{ROOT}/coordinator/catalog"
REGISTRAR = f"{ROOT}/coordinator/registrar"
BALANCER = f"{ROOT}/coordinator/balancer"
CONSUMPTION = f"{ROOT}/coordinator/consumption"
SYS_CONFIG = f"{ROOT}/coordinator/sys_config"
CUT_LOCK = f"{ROOT}/coordinator/cut_lock"
BROADCASTER = f"{ROOT}/coordinator/broadcaster/locks"
COMMITTER = f"{ROOT}/coordinator/commits/committer"
DIRECTORY = f"{ROOT}/node/directory"
PURGING = f"{ROOT}/node/purging"
MEMBERSHIP = f"{ROOT}/membership"
CHANNEL_REPORTS = f"{ROOT}/channel_reports"
SOFT_BARRIER = f"{ROOT}/timesync/soft_barrier"
HARD_BARRIER = f"{ROOT}/timesync/hard_barrier"
CURSORS = f"{ROOT}/timesync/cursors"
TICK_PRODUCER = f"{ROOT}/timesync/tick_producer"
IDS = f"{ROOT}/master/ids"
MEMBERS = f"{ROOT}/master/members"
PROXY_TICKS = f"{ROOT}/master/time_ticks/proxies"
WRITE_NODE_TICKS = f"{ROOT}/master/time_ticks/write_nodes"
SEGMENT_READER = f"{ROOT}/master/segment_reader"
SEGMENTS = f"{ROOT}/master/segments"
META_TABLE = f"{ROOT}/master/table"


class ActorLookup:
    """Finds the actors of one process by path, once `system` is set."""

    def __init__(self) -> None:
        self.system: System | None = None
        self.proxies = Proxies(
            directory=self.proxy(DIRECTORY),
            purging=self.proxy(PURGING),
            assigner=self.proxy(ASSIGNER),
            catalog=self.proxy(CATALOG),
            soft_barrier=self.proxy(SOFT_BARRIER),
            hard_barrier=self.proxy(HARD_BARRIER),
            cursors=self.proxy(CURSORS),
            broadcaster=self.proxy(BROADCASTER),
            cut_lock=self.proxy(CUT_LOCK),
            balancer=self.proxy(BALANCER),
            committer=self.proxy(COMMITTER),
            consumption=self.proxy(CONSUMPTION),
            oracle=self.proxy(ORACLE),
            ids=self.proxy(IDS),
            members=self.proxy(MEMBERS),
            proxy_ticks=self.proxy(PROXY_TICKS),
            write_node_ticks=self.proxy(WRITE_NODE_TICKS),
            sys_config=self.proxy(SYS_CONFIG),
            segment_reader=self.proxy(SEGMENT_READER),
            segments=self.proxy(SEGMENTS),
            table_changes=self.proxy(META_TABLE),
        )

    def find(self, path: str) -> Ref[Any]:
        """The actor that is at the path now. Raises what System.find raises."""
        assert self.system is not None, path
        return self.system.find(path)

    def nudge(self, path: str, message: object) -> None:
        """Tell the actor at the path, which reads changed settings then; none is told later."""
        try:
            self.find(path).tell(message)
        except ActorError:
            pass  # it restarts, and reads them then

    def proxy(self, path: str) -> Proxy:
        """The actor at this path, looked up anew for each request."""
        return Proxy(lambda: self.find(path))
