"""Tenants and proxies: in the store first, then in memory."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, assert_never

from actors import Actor, Context, Envelope
from broker.core.master.member_rules import (
    MEMBERS_BYTES_MAX,
    MEMBERS_MAX,
    check_member_id,
    check_proxy,
    check_tenant,
)
from broker.master.member_records import (
    PROXY_PREFIX,
    TENANT_PREFIX,
    decode_proxy,
    decode_tenant,
    encode_proxy,
    encode_tenant,
    proxy_key,
    tenant_key,
)
from broker.master.members.messages import (
    DeleteProxy,
    DeleteTenant,
    ListProxies,
    ListTenants,
    MemberMessage,
    PutProxy,
    PutTenant,
)
from broker.master.time_ticks.tick_records import decode_settings, settings_key
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.master.tenancy import ProxyMember, Tenant
from broker.model.master.time_ticks import TickOrigin
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import LIST_MAX, MetaError, MetaStore, WriteUnconfirmed
from broker.ports.meta_writes import all_entries

T = TypeVar("T")


class MemberTable(Actor[MemberMessage]):
    """The tenants and proxies of the meta table. `statistics`: how many there are."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._tenants: dict[int, Tenant] = {}
        self._proxies: dict[int, ProxyMember] = {}
        self._unsure = False
        """A write got no answer: all is read again before anything else is done."""

    async def started(self, context: Context[MemberMessage]) -> None:
        await self._read()

    async def receive(self, batch: Sequence[Envelope[MemberMessage]]) -> None:
        unread = await self._settle()
        for envelope in batch:
            if unread is not None:
                # All of the batch at once: each read may wait for the store as long as the first.
                envelope.fail(unread)
                continue
            try:
                await self._handle(envelope)
            except Refused as refused:
                envelope.fail(refused)
            except WriteUnconfirmed as error:
                cause = f"{error}: list the tenants and proxies, and repeat the change if it is"
                envelope.fail(Refused(StreamingCode.UNKNOWN, f"{cause} not there"))
                self._unsure = True
                unread = await self._settle()
            except MetaError as error:
                cause = f"the change could not be stored: {error}; try again"
                envelope.fail(Refused(StreamingCode.INNER, cause))

    def statistics(self) -> Mapping[str, int | float | str]:
        return {"tenants": len(self._tenants), "proxies": len(self._proxies)}

    async def _handle(self, envelope: Envelope[MemberMessage]) -> None:
        match envelope.message:
            case PutTenant(tenant):
                check_tenant(tenant)
                record = encode_tenant(tenant)
                _check_room("tenants", self._tenants, tenant.id, record, encode_tenant)
                await self._store.write({tenant_key(tenant.id): record})
                self._tenants[tenant.id] = tenant
                envelope.reply(None)
            case PutProxy(proxy):
                check_proxy(proxy)
                record = encode_proxy(proxy)
                _check_room("proxies", self._proxies, proxy.id, record, encode_proxy)
                await self._store.write({proxy_key(proxy.id): record})
                self._proxies[proxy.id] = proxy
                envelope.reply(None)
            case DeleteTenant(tenant_id):
                _check_known("tenant", self._tenants, tenant_id)
                await self._store.write({}, deletes=[tenant_key(tenant_id)])
                del self._tenants[tenant_id]
                envelope.reply(None)
            case DeleteProxy(proxy_id):
                _check_known("proxy", self._proxies, proxy_id)
                await self._delete_proxy(proxy_id)
                del self._proxies[proxy_id]
                envelope.reply(None)
            case ListTenants():
                envelope.reply(tuple([self._tenants[it] for it in sorted(self._tenants)]))
            case ListProxies():
                envelope.reply(tuple([self._proxies[it] for it in sorted(self._proxies)]))
            case message:
                assert_never(message)

    async def _delete_proxy(self, proxy_id: int) -> None:
        key = settings_key(TickOrigin.PROXIES)

        async def attempt() -> None:
            ticks = await self._store.get(key)
            if ticks is not None and proxy_id in decode_settings(key, ticks.value).peers:
                raise Refused(
                    StreamingCode.RESOURCE_ACQUIRED,
                    f"the time ticks of the proxies wait for proxy {proxy_id}; set them without it"
                    " first",
                )
            # Expected as it was read: the proxy may be named there in the meantime.
            expect = {key: ticks.revision if ticks else 0}
            await self._store.write({}, deletes=[proxy_key(proxy_id)], expect=expect)

        await retry_conflicts(key, attempt)

    async def _settle(self) -> Refused | None:
        """Read what a write without an answer has stored; why not, when the store does not say."""
        if not self._unsure:
            return None
        try:
            await self._read()
        except MetaError as error:
            cause = f"a change got no answer of the store, and cannot be read yet: {error}"
            return Refused(StreamingCode.INNER, f"{cause}; try again")
        self._unsure = False
        return None

    async def _read(self) -> None:
        tenants = await self._load(TENANT_PREFIX, decode_tenant)
        proxies = await self._load(PROXY_PREFIX, decode_proxy)
        self._tenants = {it.id: it for it in tenants}
        self._proxies = {it.id: it for it in proxies}

    async def _load(self, prefix: str, decode: Callable[[str, bytes], T]) -> list[T]:
        entries = all_entries(self._store, prefix, page=LIST_MAX)
        return [decode(key, entry.value) async for key, entry in entries]


def _check_room(
    what: str, members: Mapping[int, T], member_id: int, record: bytes, encode: Callable[[T], bytes]
) -> None:
    if member_id not in members and len(members) >= MEMBERS_MAX:
        raise invalid_argument(f"there are {MEMBERS_MAX} {what} already, the limit; delete one")
    others = [encode(it) for id, it in members.items() if id != member_id]
    size = len(record) + sum(map(len, others))
    if size > MEMBERS_BYTES_MAX:
        raise invalid_argument(
            f"all {what} would take {size:,} bytes; the limit is {MEMBERS_BYTES_MAX:,}: delete one,"
            " or use fewer or shorter channel names"
        )


def _check_known(what: str, members: Mapping[int, object], member_id: int) -> None:
    check_member_id(what, member_id)
    if member_id not in members:
        cause = f"the master knows no {what} {member_id}; list them to see which it knows"
        raise Refused(StreamingCode.CHANNEL_NOT_EXIST, cause)
