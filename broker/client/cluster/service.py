"""Unary calls to one gRPC service of one server, each with a deadline."""

from contextlib import AbstractContextManager
from typing import TypeVar

from broker.client.net.connection import Connection
from broker.transport import WireMessage

W = TypeVar("W", bound=WireMessage)


class ServiceCalls:
    """Calls methods of `service` over `connection`; raises what `broker.client.errors` has."""

    def __init__(self, connection: Connection, service: str, *, deadline_s: float) -> None:
        self._connection = connection
        self._service = service
        self._deadline_s = deadline_s

    @property
    def address(self) -> str:
        """HOST:PORT of the server."""
        return self._connection.address

    def check_usable(self) -> None:
        """Raise ClosedClient or ForkedClient when nothing new may be begun."""
        self._connection.lifetime.check_new()

    def busy(self) -> AbstractContextManager[None]:
        """Several calls that belong together: a client that is closed meanwhile waits for them."""
        return self._connection.lifetime.busy()

    async def ask(
        self,
        method: str,
        request: WireMessage,
        response_type: type[W],
        *,
        deadline_s: float | None = None,
    ) -> W:
        """One request, one response, within `deadline_s` (None: the deadline of the service)."""
        return await self._connection.call(
            f"/{self._service}/{method}",
            request,
            response_type,
            deadline_s=self._deadline_s if deadline_s is None else deadline_s,
        )
