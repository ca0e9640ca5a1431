"""StreamingCoordAssignmentService: tells clients which node serves which pchannel, as it changes.

A table is encoded once for all who listen. An AssignmentDiscover stream ends only when its client
closes it: Milvus's client reopens an ended one at once, without a pause.
"""

from collections.abc import Collection, Mapping

import anyio
import structlog
from grpclib.const import Handler

from actors import ActorError
from broker.coordinator.assignment.messages import (
    ChannelReported,
    ListPChannels,
    NextAssignment,
    UpdatePolicy,
)
from broker.edge.rpc.middleware import Call, Middleware
from broker.edge.rpc.proxies import Proxy
from broker.model.channel import Assignment, AssignmentVersion, NodeAssignment
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import NodeId, PChannelName, Term
from schemas.generated.milvus.proto import common
from schemas.generated.milvus.proto import streaming as wire

log = structlog.get_logger(__name__)

SERVICE = "/milvus.proto.streaming.StreamingCoordAssignmentService/"
ALLOW_REBALANCE = "config.allow_rebalance"
RETRY_PAUSE_S = 0.2
CLOSE = bytes(wire.AssignmentDiscoverResponse(close=wire.CloseAssignmentDiscoverResponse()))


class AssignmentService:
    """AssignmentDiscover, UpdateWALBalancePolicy, UpdateReplicateConfiguration."""

    def __init__(self, middleware: Middleware, assigner: Proxy, balancer: Proxy) -> None:
        self._middleware = middleware
        self._assigner = assigner
        self._balancer = balancer
        self._encoded: tuple[AssignmentVersion | None, bytes] = (None, b"")

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "AssignmentDiscover": middleware.streaming(self.discover),
            SERVICE + "UpdateReplicateConfiguration": middleware.unary(
                wire.UpdateReplicateConfigurationRequest, self.update_replication
            ),
            SERVICE + "UpdateWALBalancePolicy": middleware.unary(
                wire.UpdateWalBalancePolicyRequest, self.update_policy
            ),
        }

    async def update_policy(
        self, request: wire.UpdateWalBalancePolicyRequest
    ) -> wire.UpdateWalBalancePolicyResponse:
        """Set the balance policy: the fields that the mask names, or all without a mask."""
        nodes = request.nodes or wire.WalBalancePolicyNodes()
        freeze, defreeze = nodes.freeze_node_ids, nodes.defreeze_node_ids
        if min([*freeze, *defreeze], default=1) <= 0:
            raise invalid_argument(f"node id {min([*freeze, *defreeze])} is not positive")
        # As protobuf defines field masks: a field that the mask leaves out keeps its value.
        named = request.update_mask is None or ALLOW_REBALANCE in request.update_mask.paths
        config = request.config if named else None
        allow = None if config is None else config.allow_rebalance
        policy = await self._balancer.ask(
            UpdatePolicy(allow, tuple(map(NodeId, freeze)), tuple(map(NodeId, defreeze)))
        )
        return wire.UpdateWalBalancePolicyResponse(
            config=wire.WalBalancePolicyConfig(allow_rebalance=policy.allow_rebalance),
            freeze_node_ids=list(policy.frozen),
        )

    async def update_replication(
        self, request: wire.UpdateReplicateConfigurationRequest
    ) -> wire.UpdateReplicateConfigurationResponse:
        """Succeed for the present configuration: this cluster alone. Any other is UNRECOVERABLE."""
        wanted = request.configuration
        if wanted is not None and (wanted.clusters or wanted.cross_cluster_topology):
            known = await self._assigner.ask(ListPChannels())
            cause = _not_alone(wanted, self._middleware.cluster, {each.name for each in known})
            if cause:
                raise Refused(
                    StreamingCode.UNRECOVERABLE,
                    f"replication between clusters is not built, and {cause}; the present"
                    " configuration is this cluster alone, or none. Nothing was changed",
                )
        return wire.UpdateReplicateConfigurationResponse()

    async def discover(self, call: Call) -> None:
        """Serve one stream: tables out, error reports in, until the client closes it."""
        pushing = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, call, pushing)
            with pushing:
                await self._push(call)
            tasks.cancel_scope.cancel()
        await call.stream.write_batch([CLOSE], deadline_s=self._middleware.limits.flush_s)

    async def _push(self, call: Call) -> None:
        seen: AssignmentVersion | None = None
        while True:
            try:
                table = await self._assigner.ask(NextAssignment(seen))
            except (ActorError, Refused) as error:
                log.warning("assignment table not available, retrying", error=str(error))
                await anyio.sleep(RETRY_PAUSE_S)
                continue
            # None: no newer table for about a second. The next request finds a restarted Assigner.
            if table is not None and (seen is None or table.version > seen):
                await call.stream.write_batch([self._encode(table)])
                seen = table.version

    async def _listen(self, call: Call, pushing: anyio.CancelScope) -> None:
        while messages := await call.stream.read_batch():
            for message in messages:
                request = await call.reader.read(message, wire.AssignmentDiscoverRequest)
                if request.report_error is not None:
                    self._report(request.report_error)
                elif request.close is not None:
                    pushing.cancel()
                    return
        pushing.cancel()

    def _report(self, report: wire.ReportAssignmentErrorRequest) -> None:
        """Pass a client's report on; the Assigner ignores one about an older term."""
        channel = report.pchannel
        # Ignored: an error would end the stream, and the client would reopen it at once.
        if channel is None or not channel.name or channel.term <= 0:
            return
        try:
            self._assigner.tell(ChannelReported(PChannelName(channel.name), Term(channel.term)))
        except ActorError as error:
            log.warning("channel report dropped", channel=channel.name, error=str(error))

    def _encode(self, table: Assignment) -> bytes:
        # The version changes with the table, so every stream can send the same bytes.
        if self._encoded[0] != table.version:
            self._encoded = (table.version, encoded_assignment(table))
        return self._encoded[1]


def encoded_assignment(table: Assignment) -> bytes:
    """The table as an AssignmentDiscoverResponse."""
    version = wire.VersionPair(global_=table.version.incarnation, local=table.version.change)
    return bytes(
        wire.AssignmentDiscoverResponse(
            full_assignment=wire.FullStreamingNodeAssignmentWithVersion(
                version=version,
                assignments=[_node(node) for node in table.nodes],
                cchannel=wire.CChannelAssignment(
                    meta=wire.CChannelMeta(pchannel=table.control_host)
                ),
                streaming_version=_streaming(table.streaming_version),
                version_by_revision=version,
            )
        )
    )


def _streaming(version: int) -> wire.StreamingVersion | None:
    """Absent while streaming was never enabled, as in Milvus."""
    return wire.StreamingVersion(version=version) if version else None


def _node(node: NodeAssignment) -> wire.StreamingNodeAssignment:
    return wire.StreamingNodeAssignment(
        node=wire.StreamingNodeInfo(server_id=node.node_id, address=node.address),
        channels=[
            wire.PChannelInfo(
                name=channel.name,
                term=channel.term,
                access_mode=wire.PChannelAccessMode(int(channel.access)),
            )
            for channel in node.channels
        ],
    )


def _not_alone(
    wanted: common.ReplicateConfiguration, cluster: str, pchannels: Collection[str]
) -> str:
    """What the configuration asks for beyond this cluster alone; empty: nothing."""
    if wanted.cross_cluster_topology:
        edge = wanted.cross_cluster_topology[0]
        return f"it copies {edge.source_cluster_id!r} to {edge.target_cluster_id!r}"
    names = [each.cluster_id for each in wanted.clusters]
    if names != [cluster]:
        return f"it is for the clusters {names}, this one is {cluster!r}"
    if set(wanted.clusters[0].pchannels) != set(pchannels):
        return f"its pchannels of {cluster!r} are not those of this cluster"
    return ""
