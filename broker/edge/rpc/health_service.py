"""grpc.health.v1.Health: says whether this process serves, to load balancers and probes.

Not grpclib's own: that needs protobuf's runtime and classes, and it is not part of a drain. All
services of a process share one status, because they need the same parts of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import anyio
from grpclib.const import Handler, Status
from grpclib.exceptions import GRPCError

from broker.edge.rpc.middleware import Call, Middleware
from schemas.generated.grpc.health import v1

NAME = "grpc.health.v1.Health"
LOOK_S = 0.5
"""Between two looks at the status for a watcher: there is no event for every reason."""

_Status = v1.HealthCheckResponseServingStatus


class HealthService:
    """Check and Watch, for "" (the process) and the name of each of its services."""

    def __init__(
        self,
        middleware: Middleware,
        methods: Iterable[str],
        reasons_against: Callable[[], Sequence[str]],
    ) -> None:
        """`methods`: paths such as `/tidemark.v1.Log/Read`; no reasons mean that it serves."""
        self._middleware = middleware
        self._names = {"", NAME, *(path.split("/")[1] for path in methods)}
        self._reasons_against = reasons_against

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            f"/{NAME}/Check": middleware.unary(
                v1.HealthCheckRequest, self.check, while_draining=True, ungated=True
            ),
            f"/{NAME}/Watch": middleware.watching(v1.HealthCheckRequest, self.watch, ungated=True),
        }

    async def check(self, request: v1.HealthCheckRequest) -> v1.HealthCheckResponse:
        """The status. NOT_FOUND for a service that this process does not have."""
        if request.service not in self._names:
            known = ", ".join(sorted(self._names - {""}))
            raise GRPCError(
                Status.NOT_FOUND, f"there is no service {request.service!r} here, only {known}"
            )
        return v1.HealthCheckResponse(status=self._status())

    async def watch(self, request: v1.HealthCheckRequest, call: Call) -> None:
        """The status, and each change; a drain ends the stream after NOT_SERVING."""
        if request.service not in self._names:
            await self._send(call, _Status.SERVICE_UNKNOWN)
            # A client may wait for the service to come; here none does.
            await anyio.sleep_forever()
        sent = None
        try:
            while True:
                status = self._status()
                if status is not sent:
                    await self._send(call, status)
                    sent = status
                await anyio.sleep(LOOK_S)
        finally:
            if call.ending is not None and sent is _Status.SERVING:
                with anyio.CancelScope(shield=True):
                    await self._send(call, _Status.NOT_SERVING)

    async def _send(self, call: Call, status: _Status) -> None:
        answer = v1.HealthCheckResponse(status=status)
        await call.stream.write_batch([bytes(answer)], deadline_s=self._middleware.limits.flush_s)

    def _status(self) -> _Status:
        return _Status.NOT_SERVING if self._reasons_against() else _Status.SERVING
