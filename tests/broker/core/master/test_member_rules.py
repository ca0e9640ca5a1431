"""Bad tenants and proxies are refused by value."""

import pytest

from broker.core.master.member_rules import check_member_id, check_proxy, check_tenant
from broker.model.failure import Refused, StreamingCode
from broker.model.master.tenancy import ProxyMember, Tenant


@pytest.mark.parametrize(
    ("tenant", "cause"),
    [
        (Tenant(0), "tenant ID 0 must be 1 to"),
        (Tenant(1 << 63), "tenant ID 9223372036854775808"),
        (Tenant(1, -1), "has -1 query nodes"),
        (Tenant(1, 1_000_001), "has 1000001 query nodes"),
        (Tenant(1, 0, ("../../etc",)), r"the channel '../../etc'"),
        (Tenant(1, 0, ("",)), "the channel ''"),
        (Tenant(1, 0, ("c" * 256,)), "at most 255 characters"),
        (Tenant(1, 0, ("c",) * 1_025), "has 1025 channels; it must have at most 1024"),
        (Tenant(1, 0, (), "a/b"), "the channel 'a/b'"),
    ],
)
def test_a_bad_tenant_is_refused(tenant: Tenant, cause: str) -> None:
    with pytest.raises(Refused, match=cause) as caught:
        check_tenant(tenant)
    assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("proxy", "cause"),
    [
        (ProxyMember(-1, "10.0.0.1", 1), "proxy ID -1"),
        (ProxyMember(1, "", 1), "the address ''"),
        (ProxyMember(1, "a b", 1), "the address 'a b'"),
        (ProxyMember(1, "../x", 1), "the address '../x'"),
        (ProxyMember(1, "10.0.0.1", 0), "the port 0; it must be 1 to 65535"),
        (ProxyMember(1, "10.0.0.1", 65_536), "the port 65536"),
        (ProxyMember(1, "10.0.0.1", 1, ("a b",)), "the channel 'a b'"),
    ],
)
def test_a_bad_proxy_is_refused(proxy: ProxyMember, cause: str) -> None:
    with pytest.raises(Refused, match=cause):
        check_proxy(proxy)


def test_good_ones_pass() -> None:
    check_tenant(Tenant(1, 3, ("insert-0", "insert-1"), "query-0"))
    check_tenant(Tenant((1 << 63) - 1))
    for host in ("10.0.0.1", "::1", "[::1]", "proxy-1.example.org"):
        check_proxy(ProxyMember(1, host, 19_530, ("result-1",)))
    check_member_id("proxy", 1)
