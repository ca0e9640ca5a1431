"""Lets a call in: who makes it, and whether its request names only what it may use."""

from collections.abc import Mapping
from typing import Any, Final

import structlog

from broker.edge.rpc.access.access import ONLY_PROCESSES, UNCONTROLLED, Access
from broker.edge.rpc.access.gate import AccessGate
from broker.edge.rpc.access.needs import Who
from broker.edge.rpc.access.permissions import PERMISSIONS
from broker.edge.rpc.peer_names import ConnectedPeer
from broker.model.failure import Refused, StreamingCode

log = structlog.get_logger(__name__)

UNDECLARED: Final = "permission denied: this broker has no rule for the call; report it as a defect"


def admit(
    gate: AccessGate, path: str, metadata: Mapping[str, str | bytes], peer: ConnectedPeer | None
) -> Access:
    """What the caller may do; `gate.leave` when the call has ended. Raises Refused."""
    if not gate.controls:
        return UNCONTROLLED
    permission = PERMISSIONS.get(path)
    if permission is not None and permission.who is Who.ANYBODY:
        return UNCONTROLLED
    access = gate.enter(metadata, peer)
    try:
        if permission is None:
            log.error("a call has no permission", call=path)
            raise Refused(StreamingCode.PERMISSION_DENIED, UNDECLARED)
        if permission.who is Who.PROCESS and not access.of_process:
            raise Refused(*ONLY_PROCESSES)
    except Refused:
        gate.leave(access)
        raise
    return access


def is_limited(path: str, access: Access) -> bool:
    """Whether the call counts against a limit: not those of probes and of the cluster itself."""
    permission = PERMISSIONS.get(path)
    free = permission is not None and permission.who in (Who.ANYBODY, Who.PROCESS)
    return not free and not access.of_process


async def check(gate: AccessGate, access: Access, path: str, request: Any) -> None:
    """Raise Refused unless the caller may use everything that the request names."""
    if not access.controlled or access.of_process:
        return
    for need in PERMISSIONS[path].needs:
        await access.need(need.actions, await need.find(request, gate.names))
