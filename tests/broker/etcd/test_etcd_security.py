"""TLS and users of etcd: what is asked for, what is refused, and what is told then."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.place import etcd_place
from broker.ports.meta import MetaError
from broker.transport.dialling import DialledConnection
from broker.transport.tls import ClientTls, Tls
from tests.issued_files import Authorities
from tests.local_etcd import EtcdServer

ADMIN = "root"
GUARD_S = 60.0
LATE = "did not answer within"
"""What is said of an etcd that does not end its handshake in time."""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[EtcdServer]:
    """With users: `broker` may read and write below `tidemark/`, `guest` nothing."""
    with EtcdServer(tmp_path / "etcd") as server:
        server.post("auth/role/add", {"name": "root"})
        server.post("auth/role/add", {"name": "metadata"})
        start, end = "dGlkZW1hcmsv", "dGlkZW1hcmsw"  # tidemark/, tidemark0
        server.post("auth/role/grant", {
            "name": "metadata",
            "perm": {"permType": "READWRITE", "key": start, "range_end": end},
        })  # fmt: skip
        for user, role in ((ADMIN, "root"), ("broker", "metadata"), ("guest", "")):
            server.post("auth/user/add", {"name": user, "password": f"{user}'s"})
            if role:
                server.post("auth/user/grant", {"user": user, "role": role})
        server.post("auth/enable", {})
        yield server


def token(server: EtcdServer) -> str:
    login = {"name": ADMIN, "password": f"{ADMIN}'s"}
    return str(server.post("auth/authenticate", login)["token"])


async def opened(
    server: EtcdServer, user: str = "", password: Callable[[], str] = str
) -> EtcdMetaStore:
    place = etcd_place(f"etcd://{f'{user}@' if user else ''}{server.address}/tidemark")
    return await EtcdMetaStore.open(place, owner="me", password=password, call_s=30)


async def test_a_user_writes_and_logs_in_again_after_etcd_forgot_its_token(
    guarded: EtcdServer,
) -> None:
    async with await opened(guarded, "broker", lambda: "broker's") as store:
        revision = await store.write({"a": b"1"})
        guarded.kill()  # with the tokens that it gave out
        guarded.start()
        entry = await store.get("a")
        assert entry is not None
        assert entry.value == b"1"
        # This makes every token stale that was given out before.
        guarded_token = token(guarded)
        guarded.post("auth/user/add", {"name": "one more", "password": "x"}, guarded_token)
        assert await store.write({"a": b"2"}, expect={"a": revision}) > revision


async def test_a_changed_password_is_read_at_the_next_login(guarded: EtcdServer) -> None:
    passwords = ["broker's"]
    async with await opened(guarded, "broker", lambda: passwords[-1]) as store:
        change = {"name": "broker", "password": "new"}
        guarded.post("auth/user/changepw", change, token(guarded))
        passwords.append("new")
        await store.write({"a": b"1"})


@pytest.mark.parametrize(
    ("user", "password", "told"),
    [
        ("", "", "name it in the URL, as etcd://USER@HOST/PREFIX"),
        ("broker", "wrong", "check the user in the URL, and meta_password_file"),
        ("nobody", "x", "check the user in the URL, and meta_password_file"),
        ("guest", "guest's", "grant the user's role readwrite permission for the prefix"),
    ],
)
async def test_who_may_not_is_told_what_to_do(
    guarded: EtcdServer, user: str, password: str, told: str
) -> None:
    with pytest.raises(MetaError, match=told):
        await opened(guarded, user, lambda: password)


async def test_a_user_that_is_revoked_while_it_works_is_told(guarded: EtcdServer) -> None:
    async with await opened(guarded, "broker", lambda: "broker's") as store:
        await store.write({"a": b"1"})
        guarded.post("auth/user/delete", {"name": "broker"}, token(guarded))
        with pytest.raises(MetaError, match="check the user"):
            await store.write({"a": b"2"})
        with pytest.raises(MetaError, match="check the user"):
            await store.get("a")


async def test_a_role_that_is_taken_away_while_it_is_used_is_told(guarded: EtcdServer) -> None:
    async with await opened(guarded, "broker", lambda: "broker's") as store:
        await store.write({"a": b"1"})
        taken = {"name": "broker", "role": "metadata"}
        guarded.post("auth/user/revoke", taken, token(guarded))
        with pytest.raises(MetaError, match="grant the user's role"):
            await store.write({"a": b"2"})
        guarded.post("auth/user/grant", {"user": "broker", "role": "metadata"}, token(guarded))
        entry = await store.get("a")
        assert entry is not None
        assert entry.value == b"1"


async def test_a_user_where_etcd_knows_none_is_refused(tmp_path: Path) -> None:
    told = "take the user out of the URL"
    with EtcdServer(tmp_path / "etcd") as server, pytest.raises(MetaError, match=told):
        await opened(server, "broker", lambda: "x")


@pytest.fixture
def issued(tmp_path: Path) -> Authorities:
    return Authorities(tmp_path / "authority")


@pytest.fixture
def encrypted(tmp_path: Path, issued: Authorities) -> Iterator[EtcdServer]:
    """With TLS, and a certificate asked for."""
    files = issued.server()
    more = ["--cert-file", str(files.cert), "--key-file", str(files.key)]
    more += ["--client-cert-auth", "--trusted-ca-file", str(issued.ca)]
    server = EtcdServer(tmp_path / "etcd", more=more)
    try:
        yield server.start()
    finally:
        server.kill()


async def open_with(server: EtcdServer, tls: Tls | None, call_s: float = 30) -> EtcdMetaStore:
    place = etcd_place(f"etcd://{server.address}/tidemark")
    given = None if tls is None else ClientTls(tls)
    return await EtcdMetaStore.open(place, owner="me", tls=given, call_s=call_s)


async def test_both_sides_show_certificates(encrypted: EtcdServer, issued: Authorities) -> None:
    async with await open_with(encrypted, issued.client()) as store:
        revision = await store.write({"a": b"1"})
        entry = await store.get("a")
        assert entry is not None
        assert entry.revision == revision


async def test_a_store_that_closes_waits_for_no_last_word_of_etcd(
    encrypted: EtcdServer, issued: Authorities
) -> None:
    """Nobody may be left to wait: the event loop may end now."""
    async with await open_with(encrypted, issued.client()) as store:
        connection = store._members._members[0]._channel._protocol
        assert isinstance(connection, DialledConnection)
        socket = connection._transport.get_extra_info("socket")
        assert socket.fileno() >= 0
    await anyio.lowlevel.checkpoint()
    assert socket.fileno() == -1


async def test_without_the_right_certificate_it_is_told(
    encrypted: EtcdServer, issued: Authorities, tmp_path: Path
) -> None:
    await (await open_with(encrypted, issued.client())).close()  # it is up
    stranger = Authorities(tmp_path / "stranger", "stranger")
    for tls, told in (
        (None, "if it speaks TLS, connect with TLS"),
        (Tls(issued.ca), "it asks clients for a certificate"),
        (stranger.client(), "certificate"),
    ):
        said = LATE
        with anyio.fail_after(GUARD_S):
            while LATE in said and not re.search(told, said):
                with pytest.raises(MetaError) as refused:
                    await open_with(encrypted, tls, call_s=1)
                said = str(refused.value)
        assert re.search(told, said), said
