"""tidemark.v1.Broadcasts: unfinished broadcasts, their locks, and an operator's retry or skip."""

from collections.abc import Iterable, Mapping
from typing import Final

from grpclib.const import Handler

from broker.coordinator.broadcast.messages import (
    BroadcastView,
    ListBroadcasts,
    ListLocks,
    RetryBroadcast,
    SkipBroadcast,
    WaitForKey,
)
from broker.edge.milvus.broadcast_request import DOMAINS, unknown_domain
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.model.broadcast import ResourceKey
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.Broadcasts/"
WAIT_S: Final = 3600.0


class BroadcastsService:
    """List, Locks, Retry, Skip, WaitForKey."""

    def __init__(self, middleware: Middleware, broadcaster: Proxy) -> None:
        self._middleware = middleware
        self._broadcaster = broadcaster

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "List": middleware.unary(v1.ListBroadcastsRequest, self.list),
            SERVICE + "Locks": middleware.unary(v1.ListLocksRequest, self.locks),
            SERVICE + "Retry": middleware.unary(v1.RetryBroadcastRequest, self.retry),
            SERVICE + "Skip": middleware.unary(v1.SkipBroadcastRequest, self.skip),
            SERVICE + "WaitForKey": middleware.unary(
                v1.WaitForKeyRequest, self.wait_for_key, interruptible=True
            ),
        }

    async def list(self, request: v1.ListBroadcastsRequest) -> v1.ListBroadcastsResponse:
        """The broadcasts that are not finished."""
        found = await self._broadcaster.ask(ListBroadcasts())
        wanted = [it for it in found if it.poison or not request.quarantine_only]
        return v1.ListBroadcastsResponse(broadcasts=[_info(it) for it in wanted])

    async def locks(self, _: v1.ListLocksRequest) -> v1.ListLocksResponse:
        """The locks held, and those waited for."""
        found = await self._broadcaster.ask(ListLocks())
        return v1.ListLocksResponse(
            locks=[v1.LockInfo(owner=it.owner, keys=_keys(it.keys), held=it.held) for it in found]
        )

    async def retry(self, request: v1.RetryBroadcastRequest) -> v1.RetryBroadcastResponse:
        """Retry a broadcast. INVALID_ARGUMENT when it is not in quarantine."""
        await self._broadcaster.ask(RetryBroadcast(request.name))
        return v1.RetryBroadcastResponse()

    async def skip(self, request: v1.SkipBroadcastRequest) -> v1.SkipBroadcastResponse:
        """Skip a broadcast. INVALID_ARGUMENT when it is not in quarantine."""
        await self._broadcaster.ask(SkipBroadcast(request.name))
        return v1.SkipBroadcastResponse()

    async def wait_for_key(self, request: v1.WaitForKeyRequest) -> v1.WaitForKeyResponse:
        """Wait until no broadcast holds the key. INVALID_ARGUMENT for an unknown domain."""
        key = request.key or v1.ResourceKey()
        if key.domain not in DOMAINS:
            raise unknown_domain(key.key, key.domain)
        wanted = ResourceKey(DOMAINS[key.domain], key.key)
        await self._broadcaster.ask(WaitForKey(wanted, request.all_acked), deadline_s=WAIT_S)
        return v1.WaitForKeyResponse()


def _info(view: BroadcastView) -> v1.BroadcastInfo:
    return v1.BroadcastInfo(
        name=view.name,
        state=view.state,
        type=view.type,
        keys=_keys(view.keys),
        vchannels=view.vchannels,
        appended=view.appended,
        acked=view.acked,
        poison=view.poison,
        failures=view.failures,
        last_error=view.last_error,
        acked_by=view.acked_by,
    )


def _keys(keys: Iterable[ResourceKey]) -> "list[v1.ResourceKey]":
    return [v1.ResourceKey(domain=int(it.domain), key=it.key, shared=it.shared) for it in keys]
