"""The audit of real processes: a file for each, settings while they run, and no secret anywhere."""

import json
import signal
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from broker.client import Client, Message, connect
from broker.client.errors import NotAuthenticated, TidemarkError
from broker.transport.tls import Tls
from tests.issued_files import HOSTS, Authorities
from tests.roles_processes import RoleProcess, until

GUARD_S = 90.0
LISTEN = ("--listen", "127.0.0.1:0", "--pchannels", "2")
SECRETS = {
    "payload": "planted-payload-7f3a",
    "key": "planted-key-91bc",
    "property": "planted-property-44de",
    "staged": "planted-staged-0c1d",
    "config": "planted-password-5e2f",
}
TOKENS = {
    "first": "planted0token0of0root" * 3,
    "wrong": "planted0token0of0nobody" * 3,
    "jwt": "eyJhbGciOiJub25lIn0.planted-claims-1f2e.planted-signature-9c7d",
}


def files_in(data: Path) -> set[str]:
    return {it.name for it in (data / "audit").iterdir()}


def lines_of(data: Path, name: str) -> list[dict[str, Any]]:
    file = data / "audit" / f"{name}.jsonl"
    return [json.loads(it) for it in file.read_text().splitlines()] if file.exists() else []


async def line_of(data: Path, name: str, action: str, **wanted: Any) -> dict[str, Any]:
    """The first line of a process with this action and these values, once it is there."""
    found: list[dict[str, Any]] = []

    async def is_there() -> bool:
        found[:] = [
            it
            for it in lines_of(data, name)
            if it["action"] == action and all(it.get(key) == wanted[key] for key in wanted)
        ]
        return bool(found)

    await until(is_there)
    return found[0]


async def test_each_process_has_a_file_of_its_own_and_says_when_it_began_and_ended(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with RoleProcess("serve", "--nodes", "2", "--data-dir", str(data), *LISTEN) as broker:
        async with connect(await broker.ready()) as log:
            made = await log.collections.create("flights", shards=2)
            await log.append("flights", b"x")
            await log.collections.drop("flights")
            await line_of(data, "coordinator", "ddl", method="/tidemark.v1.Collections/Drop")
            for node in ("node-1", "node-2"):
                await line_of(data, node, "cluster")
        assert broker.terminate() == 0
    assert files_in(data) == {"coordinator.jsonl", "node-1.jsonl", "node-2.jsonl"}
    assert made.vchannels
    for name in ("coordinator", "node-1", "node-2"):
        lines = lines_of(data, name)
        assert (lines[0]["action"], lines[-1]["action"]) == ("start", "stop")
        pids = {it["on"]["pid"] for it in lines if "pid" in it["on"]}
        assert len(pids) == 1
    ddl = [it for it in lines_of(data, "coordinator") if it["action"] == "ddl"]
    assert [(it["on"], it["outcome"]) for it in ddl] == [({"collection": "flights"}, "ok")] * 2
    (registered, *_) = [
        it for it in lines_of(data, "coordinator") if it.get("method", "").endswith("/Register")
    ]
    assert registered["on"]["node"] in (1, 2)


async def test_access_to_data_is_recorded_from_the_setting_on_and_no_longer_without_it(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with RoleProcess("serve", "--data-dir", str(data), *LISTEN) as broker:
        address = await broker.ready()
        async with connect(address) as log:
            await log.collections.create("flights", shards=1)
            async with connect(address) as other:
                await other.append("flights", b"x")
            await log.config.set("audit_data", "true")
            async with connect(address) as other:
                await other.append("flights", b"x")
            line = await line_of(data, "single", "produce")
            (vchannel,) = (await log.collections.get("flights")).vchannels
            assert line["kind"] == "data"
            assert line["on"]["vchannels"] == [vchannel]
            await log.config.set("audit_data", "false")
            async with connect(address) as other:
                await other.append("flights", b"x")
        assert broker.terminate() == 0
    produced = [it for it in lines_of(data, "single") if it["action"] == "produce"]
    assert len(produced) == 1, "neither before the setting nor after it"
    changed = [it["on"] for it in lines_of(data, "single") if it["action"] == "settings"]
    assert changed.count({"settings": ["audit_data"]}) == 4, "each call, and each change here"


async def test_a_hangup_reloads_the_size_of_the_files(tmp_path: Path) -> None:
    data, config = tmp_path / "data", tmp_path / "broker.toml"
    config.write_text("audit_bytes_max = 1048576\n")
    options = ("--config", str(config), "--data-dir", str(data), *LISTEN)
    with RoleProcess("serve", *options) as broker:
        async with connect(await broker.ready()) as log:
            config.write_text("audit_bytes_max = 65536\naudit_files_max = 2\n")
            broker.process.send_signal(signal.SIGHUP)
            await line_of(
                data, "single", "settings", on={"settings": ["audit_bytes_max", "audit_files_max"]}
            )
            for number in range(450):
                with pytest.raises(TidemarkError):
                    await log.collections.drop(f"{number}-{'x' * 200}")
            await until(lambda: _has(data, "single.jsonl.1"))
        assert broker.terminate() == 0
    assert files_in(data) == {"single.jsonl", "single.jsonl.1"}
    for name in files_in(data):
        file = data / "audit" / name
        assert file.stat().st_size <= 65536
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def _has(data: Path, name: str) -> bool:
    return name in files_in(data)


async def test_a_flood_of_refusals_from_one_peer_is_few_lines(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RoleProcess("serve", "--data-dir", str(data), *LISTEN) as broker:
        async with connect(await broker.ready()) as log:
            for number in range(300):
                with pytest.raises(TidemarkError):
                    await log.collections.create(f"bad name {number}", shards=1)
        assert broker.terminate() == 0
    refused = [it for it in lines_of(data, "single") if it["decision"] == "refused"]
    assert len(refused) < 50
    assert len([it for it in refused if "repeated" not in it]) + sum(
        it.get("repeated", 0) for it in refused
    ) == 300, "and no refusal is missing in the sums"  # fmt: skip


async def test_a_failing_audit_is_told_by_health_and_stops_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "audit").write_text("in the way")
    with RoleProcess("serve", "--data-dir", str(data), *LISTEN) as broker:
        async with connect(await broker.ready()) as log:
            await log.collections.create("flights", shards=1)
            await log.append("flights", b"x")
            warnings = (await log.admin.health()).warnings
            assert any("the audit cannot be written" in it for it in warnings), warnings
            (data / "audit").unlink()
            await line_of(data, "single", "ddl")

            async def silent() -> bool:
                return not (await log.admin.health()).warnings

            await until(silent)
        assert broker.terminate() == 0


async def test_neither_logs_nor_audit_have_a_planted_secret(tmp_path: Path) -> None:
    ours = Authorities(tmp_path / "tls")
    cert, key = ours.issue("server", *HOSTS)
    client = ours.client("reporting")
    theirs = Authorities(tmp_path / "theirs", "other").client("stranger")
    stranger = Tls(ours.ca, theirs.cert, theirs.key)
    data = tmp_path / "data"
    settings = {
        "tls_cert": str(cert),
        "tls_key": str(key),
        "tls_ca": str(ours.ca),
        "audit_data": "true",
        "log_level": "debug",
        "allow_chaos": "true",
    }
    command = ("serve", "--nodes", "1", "--data-dir", str(data), *LISTEN)
    said: list[str] = []
    with RoleProcess(*command, **settings) as broker:
        async with anyio.create_task_group() as reading:
            reading.start_soon(_read_log, broker, said)  # or it fills the pipe, and waits
            address = await broker.ready()
            async with connect(address, tls=client) as log:
                await _use_all(log)
            with pytest.raises(TidemarkError):
                async with connect(address, tls=stranger) as other:
                    await other.append("flights", SECRETS["payload"].encode(), deadline_s=2)
            broker.process.send_signal(signal.SIGTERM)
    audits = [file.read_text() for file in (data / "audit").iterdir()]
    assert len(audits) == 2
    private = [key, Path(str(client.key))]
    _assert_without_secrets([*said, *audits], SECRETS, _lines_of_keys(private))
    whole = "".join(audits)
    assert '"who":"reporting"' in whole, "who did it is there"
    assert '"action":"consume"' in whole
    assert "BAD_CERTIFICATE" in whole
    assert "RATE_LIMIT_REJECTED" in whole
    assert "flights" in whole
    assert "DEBUG" in "".join(said).upper()


async def test_neither_logs_nor_audit_have_a_token(tmp_path: Path) -> None:
    data, users = tmp_path / "data", tmp_path / "users.toml"
    users.touch(mode=0o600)
    first = f"tm_root_{TOKENS['first']}"
    users.write_text(f'[users.root]\nroles = ["admin"]\ntoken = "{first}"\n')
    settings = {
        "auth": "on",
        "auth_bootstrap": str(users),
        "audit_data": "true",
        "log_level": "debug",
    }
    command = ("serve", "--nodes", "1", "--data-dir", str(data), *LISTEN)
    said: list[str] = []
    with RoleProcess(*command, **settings) as broker:
        async with anyio.create_task_group() as reading:
            reading.start_soon(_read_log, broker, said)
            address = await broker.ready()
            async with connect(address, token=first) as log:
                given = await _use_tokens(log, address)
            for wrong in (f"tm_root_{TOKENS['wrong']}", TOKENS["jwt"]):
                with pytest.raises(NotAuthenticated) as refused:
                    async with connect(address, token=wrong):
                        pass
                assert wrong not in str(refused.value)
            broker.process.send_signal(signal.SIGTERM)
    audits = [file.read_text() for file in (data / "audit").iterdir()]
    cluster = (data / "cluster.secret").read_text().strip()
    secrets = {**TOKENS, "given": given.split("_", 2)[2], "cluster": cluster}
    assert all(len(it) > 40 for it in secrets.values())
    _assert_without_secrets([*said, *audits], secrets, [])
    whole = "".join(audits)
    assert '"user":"root"' in whole
    assert '"user":"ann"' in whole, "to whom a token was given"
    assert "NOT_AUTHENTICATED" in whole


async def _use_tokens(log: Client, address: str) -> str:
    """A token is made, used, and revoked while it is used; it."""
    await log.collections.create("flights", shards=1)
    await log.auth.add_user("ann", ["reader"])
    made = await log.auth.add_token("ann", note="for the test")
    async with connect(address, token=made.text) as ann:
        read = [it async for it in ann.read("flights", start="all", until="now")]
        assert read == []
        await log.auth.revoke_token(made.info.id)
        with pytest.raises(TidemarkError), anyio.fail_after(GUARD_S):
            async for _ in ann.read("flights", start="latest"):
                pass
    return made.text


async def _read_log(broker: RoleProcess, said: list[str]) -> None:
    assert broker.process.stderr is not None
    read = broker.process.stderr.read
    said.append(await anyio.to_thread.run_sync(read, abandon_on_cancel=True))


async def _use_all(log: Client) -> None:
    """Everything that may carry a secret: bodies, keys, properties, settings, refusals of each."""
    payload, key = SECRETS["payload"].encode(), SECRETS["key"].encode()
    await log.collections.create("flights", shards=2)
    properties = {"trace": SECRETS["property"]}
    await log.append("flights", payload, key=key, properties=properties)
    await log.append_messages("flights", [Message(payload, key=key, properties=properties)] * 9)
    vchannel = (await log.collections.get("flights")).vchannels[0]
    async with log.txn(vchannel) as txn:
        await txn.append(SECRETS["staged"].encode(), key=key)
    url = f"postgres://app:{SECRETS['config']}@db.example.org/x"
    await log.config.set("app/database_url", url)
    with pytest.raises(TidemarkError):
        await log.config.set("log_level", SECRETS["config"])
    with pytest.raises(TidemarkError):
        await log.append("flights", b"x" * (9 << 20), key=key)
    await log.config.set("limits", "collection:flights in_bytes=1")
    with pytest.raises(TidemarkError):
        await _append_twice(log, payload, key, properties)
    await log.config.set("limits", "")
    await log.admin.kill_actor("/root/coordinator/catalog")
    with anyio.fail_after(GUARD_S):
        read = [
            message.payload
            async for batch in log.read("flights", start="all", until="now")
            for message in batch.messages
        ]
    assert payload in read


async def _append_twice(
    log: Client, payload: bytes, key: bytes, properties: dict[str, str]
) -> None:
    for _ in range(2):  # the first one may leave a debt of many seconds
        await log.append("flights", payload, key=key, properties=properties, deadline_s=2)


def _lines_of_keys(files: Sequence[Path]) -> list[str]:
    found = [line for file in files for line in file.read_text().splitlines() if len(line) > 40]
    assert found
    return found


def _assert_without_secrets(
    texts: Sequence[str], secrets: Mapping[str, str], private: Sequence[str]
) -> None:
    for text in texts:
        for name, secret in secrets.items():
            assert secret not in text, f"{name}: {_around(text, secret)}"
            assert secret.encode().hex() not in text, name
        for line in private:
            assert line not in text


def _around(text: str, secret: str) -> str:
    at = text.index(secret)
    return text[max(0, at - 200) : at + 100]
