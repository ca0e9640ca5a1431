"""Keeps the list of nodes and their leases.

A node's record outlives the coordinator, so that a restart of it takes no node's permission to
write: every recorded node has the time of the longest granted lease to send a heartbeat.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

import structlog

from actors import Actor, ActorError, Context, Envelope
from actors.clock import deadline
from broker.coordinator.assignment.founding import found_cluster
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import NodesChanged
from broker.coordinator.counters import count_up
from broker.coordinator.leases.granted_leases import GrantedLeases
from broker.coordinator.leases.messages import (
    CheckLeases,
    CloseCluster,
    LeaveCluster,
    NodeAbsent,
    ProcessEnded,
    RegisterNode,
    RegistrarMessage,
    RenewLease,
)
from broker.coordinator.records import (
    ALTER_KEY,
    NODE_PREFIX,
    SESSION_KEY,
    decode_member,
    encode_member,
    node_key,
)
from broker.core.cluster.node_leases import NodeMember, admit, expired, renewed
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import NodeId, PChannelName
from broker.ports.meta import MetaError, MetaStore
from broker.ports.meta_writes import all_entries
from broker.ports.nodes import NodeControl, NodeLease

CHECKS_PER_LEASE = 20
"""So an expired lease is noticed within 5 % of its length."""
FORGET_SHARE = 0.25
"""The share of a lease for which a batch of messages waits for the records of ended sessions."""

ConnectNode = Callable[[NodeId, str, Callable[[], None]], NodeControl]
"""Makes the proxy of a node at an address; the callback reports that nothing listens there."""

log = structlog.get_logger(__name__)


class Registrar(Actor[RegistrarMessage]):
    """See the module. `statistics`: nodes now; how many joined, left and were lost."""

    _context: Context[RegistrarMessage]

    def __init__(
        self,
        store: MetaStore,
        nodes: LiveNodes,
        connect: ConnectNode,
        pchannels: tuple[PChannelName, ...],
        assigner_path: str,
        lease_s: float,
    ) -> None:
        self._store = store
        self._nodes = nodes
        self._connect = connect
        self._pchannels = pchannels
        self._assigner_path = assigner_path
        self._lease_s = lease_s
        self._granted = GrantedLeases(store, lease_s)
        self._members: dict[NodeId, NodeMember] = {}
        self._ended: dict[NodeId, NodeMember] = {}
        """Their sessions are over; their records may still say otherwise."""
        self._told: set[NodeId] = set()
        """Those of which a warning was logged: their records could not be deleted."""
        self._forgets_until_s = 0.0
        self._closing = False
        self._came = self._left = self._lost = 0

    async def started(self, context: Context[RegistrarMessage]) -> None:
        self._context = context
        self._identity = (await found_cluster(self._store, self._pchannels)).identity
        await self._granted.inherit(context.clock.monotonic_s())
        # Recorded nodes may write until the longest lease granted to them ends: wait for that long.
        until_s = self._until_s()
        async for key, entry in all_entries(self._store, NODE_PREFIX):
            member = replace(decode_member(key, entry.value), until_s=until_s)
            self._members[member.node] = member
            found = self._nodes.find(member.node)
            # A proxy that still fits is kept: a new object counts as a new process, and clients
            # would not be sent to its channels before it has confirmed each again.
            if found is None or found.address != member.address:
                self._nodes.put(self._proxy_of(member))
        self._nodes.sessions = {it.node: it.session for it in self._members.values()}
        # The Registrar before this one ended their sessions and died before it dropped them.
        for gone in [it.node_id for it in self._nodes.all() if it.node_id not in self._members]:
            self._nodes.drop(gone)
        self._changed()
        context.on_beat(self._lease_s / CHECKS_PER_LEASE, CheckLeases())

    async def receive(self, batch: Sequence[Envelope[RegistrarMessage]]) -> None:
        """Renew first: a lease must not expire behind other messages in the mailbox."""
        # Before all: the ends of nodes in the same batch are then expected, not failures.
        self._closing |= any(isinstance(it.message, CloseCluster) for it in batch)
        now_s = self._context.clock.monotonic_s()
        self._forgets_until_s = now_s + self._lease_s * FORGET_SHARE
        for envelope in batch:
            if isinstance(envelope.message, RenewLease):
                self._renew(envelope.message, envelope)
        for envelope in batch:
            try:
                await self._handle(envelope)
            except MetaError as error:
                envelope.fail(Refused(StreamingCode.INNER, str(error)))

    def statistics(self) -> Mapping[str, int | float | str]:
        return {
            "nodes": len(self._members),
            "came": self._came,
            "left": self._left,
            "lost": self._lost,
        }

    async def _handle(self, envelope: Envelope[RegistrarMessage]) -> None:
        match envelope.message:
            case RegisterNode() as request:
                await self._register(request, envelope)
            case RenewLease() | CloseCluster():
                pass  # done before everything else
            case LeaveCluster(node, session):
                await self._leave(node, session)
                envelope.reply(None)
            # By session: a successor may have registered since the call to this process failed.
            case NodeAbsent(node, session):
                await self._absent(lambda it: (it.node, it.session) == (node, session))
            case ProcessEnded(node, pid):
                await self._absent(lambda it: (it.node, it.pid) == (node, pid))
            case CheckLeases():
                await self._check()
            case message:
                assert_never(message)

    async def _register(self, request: RegisterNode, envelope: Envelope[RegistrarMessage]) -> None:
        # Two clusters may have the same names: a node of the other one would open the wrong logs.
        if request.cluster_id != self._identity:
            cause = (
                f"node {request.node} keeps its data in a folder of cluster"
                f" {request.cluster_id or 'unknown'}, the coordinator in one of {self._identity}:"
                " both need the same --data-dir"
            )
            envelope.fail(Refused(StreamingCode.INVALID_ARGUMENT, cause))
            return
        if not request.knows_places and await self._store.get(ALTER_KEY) is not None:
            cause = (
                f"node {request.node} is of a release that does not know that the log of this"
                " cluster was switched, and would look for it where it was: start the release of"
                " the coordinator there"
            )
            envelope.fail(Refused(StreamingCode.INVALID_ARGUMENT, cause))
            return
        newcomer = NodeMember(
            node=request.node,
            address=request.address,
            pid=request.pid,
            incarnation=request.incarnation,
            session=0,
            until_s=self._until_s(),
            knows_places=request.knows_places,
        )
        holder = self._members.get(request.node)
        admitted = admit(holder, newcomer, self._context.clock.monotonic_s())
        if isinstance(admitted, Refusal):
            envelope.fail(Refused(admitted.code, admitted.cause))
            return
        if admitted is newcomer:
            await self._enter(newcomer)
        else:  # the same process again, because an answer was lost: it keeps its session
            self._members[admitted.node] = admitted
        self._nodes.heard(request.node)
        envelope.reply(self._lease(self._members[request.node], request.settings_revision))

    async def _enter(self, newcomer: NodeMember) -> None:
        """Store session number and node in one write, before anyone hears of the node."""

        def record(session: int) -> Mapping[str, bytes]:
            member = replace(newcomer, session=session)
            return {node_key(member.node): encode_member(member)}

        counted = await count_up(self._store, SESSION_KEY, record)
        member = replace(newcomer, session=counted.number)
        self._members[member.node] = member
        # That write replaced the record of the earlier session.
        self._ended.pop(member.node, None)
        self._told.discard(member.node)
        self._nodes.put(self._proxy_of(member))
        self._nodes.begin_session(member.node, member.session)
        self._came += 1
        log.info("node came", node=member.node, address=member.address, session=member.session)
        self._changed()

    def _renew(self, request: RenewLease, envelope: Envelope[RegistrarMessage]) -> None:
        holder = self._members.get(request.node)
        member = renewed(holder, request.session, self._until_s(), stopping=request.stopping)
        if isinstance(member, Refusal):
            envelope.fail(Refused(member.code, member.cause))
            return
        if self._is_out_of_reach(member.node):
            cause = (
                f"node {member.node} answers none of the coordinator's calls to {member.address}:"
                " its lease is not renewed while other nodes can take its channels; open the way"
                " there, or start the node with another --advertise HOST[:PORT]"
            )
            envelope.fail(Refused(StreamingCode.INNER, cause))
            return
        # Not stored: the end of a lease is a time of this process's clock. A later coordinator
        # grants each recorded node a whole lease instead.
        self._members[member.node] = member
        self._nodes.heard(member.node)
        if member.stopping and holder is not None and not holder.stopping:
            self._nodes.retire(member.node)
            self._changed()
        envelope.reply(self._lease(member, request.settings_revision))

    def _is_out_of_reach(self, node: NodeId) -> bool:
        """Whether calls have not reached it for long, and do reach one that could take over."""
        can_move = bool(self._nodes.could_replace()) and not self._closing
        return can_move and self._nodes.is_out_of_reach(node)

    async def _leave(self, node: NodeId, session: int) -> None:
        member = self._members.get(node)
        if member is not None and member.session == session:
            self._left += 1
            await self._end([member])

    async def _absent(self, is_meant: Callable[[NodeMember], bool]) -> None:
        gone = [member for member in self._members.values() if is_meant(member)]
        for member in gone:
            if self._closing or member.stopping:
                log.info("stopping node has ended", node=member.node, pid=member.pid)
            elif self._nodes.is_confirmed(member.node):
                log.warning("node lost: its process is gone", node=member.node, pid=member.pid)
            else:
                log.info("node of the earlier coordinator has ended", node=member.node)
        self._lost += len(gone)
        await self._end(gone)

    async def _check(self) -> None:
        now_s = self._context.clock.monotonic_s()
        late = expired(self._members.values(), now_s)
        for member in late:
            log.warning("node lost: its lease ran out", node=member.node, address=member.address)
        self._lost += len(late)
        await self._end(late)
        await self._granted.shorten(now_s)

    async def _end(self, gone: Sequence[NodeMember]) -> None:
        """End these sessions, and drop every node whose record no longer has one.

        The record goes first: a later coordinator that still found it would renew the session, and
        its node would close ticks of channels that others own by then.
        """
        for member in gone:
            # From here on the session is not renewed: the delete may take effect at any time.
            self._ended[member.node] = self._members.pop(member.node)
            # Nor does the node get ticks: it may have a lease by its own clock still.
            self._nodes.end_session(member.node)
        dropped = await self._forgotten()
        for node in dropped:
            del self._ended[node]
            self._told.discard(node)
            self._nodes.drop(node)
        if dropped:
            self._changed()

    async def _forgotten(self) -> Sequence[NodeId]:
        """The ended sessions without a record now; the others are tried again at each check."""
        found: list[NodeId] = []
        cause = "the store does not answer"
        left_s = self._forgets_until_s - self._context.clock.monotonic_s()
        # Bounded for all of them together: the leases of the other nodes wait meanwhile.
        with deadline(self._context.clock, max(0.0, left_s)):
            for member in tuple(self._ended.values()):
                try:
                    await self._forget(node_key(member.node), member.session)
                except MetaError as error:
                    cause = str(error)
                else:
                    found.append(member.node)
        for node in self._ended.keys() - self._told - set(found):
            log.warning(
                "the channels of a lost node wait until its record can be deleted",
                node=node,
                error=cause,
            )
            self._told.add(node)
        return found

    async def _forget(self, key: str, session: int) -> None:
        """Delete the record of a session. An earlier attempt may have lost its answer only."""
        entry = await self._store.get(key)
        if entry is not None and decode_member(key, entry.value).session == session:
            await self._store.write({}, deletes=[key], expect={key: entry.revision})

    def _changed(self) -> None:
        try:
            self._context.tree.find(self._assigner_path).tell(NodesChanged())
        except ActorError:
            pass  # it reads LiveNodes when it restarts

    def _proxy_of(self, member: NodeMember) -> NodeControl:
        registrar, gone = self._context.self, NodeAbsent(member.node, member.session)

        def absent() -> None:
            try:
                registrar.tell(gone)
            except ActorError:
                pass

        return self._connect(member.node, member.address, absent)

    def _lease(self, member: NodeMember, settings_revision: int | None) -> NodeLease:
        # A stopping node waits for its channels to move, unless there is no node to move them to.
        moving = member.stopping and not self._closing and bool(self._nodes.accepting())
        paused = bool(self._nodes.consumption_paused)
        lease = NodeLease(member.session, self._lease_s, moving, paused)
        settings = self._nodes.settings
        self._nodes.has_settings(member.node, settings_revision)
        # By another, not by an older one: the store may have been restored from a backup.
        if settings is None or settings_revision in (None, settings.revision):
            return lease
        return replace(lease, settings=settings)

    def _until_s(self) -> float:
        return self._granted.until_s(self._context.clock.monotonic_s())
