"""What a process refuses, logs and tells of its ports, by its settings."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from broker.app.process_errors import CannotStart
from broker.app.security.certificate_names import refuse_unnamed
from broker.app.security.secured import (
    client_tls,
    http_tls,
    refuse_exposed,
    security_warnings,
    server_tls,
)
from broker.app.stores.plain_links import plain_links
from broker.config import load_settings
from broker.config_file import BadConfig
from broker.process_settings import Settings
from tests.issued_files import Authorities


def settings(tls: Authorities | None = None, *, asks: bool = True, **given: object) -> Settings:
    if tls is not None:
        files = tls.server()
        given |= {"tls_cert": files.cert, "tls_key": files.key}
        given |= {"tls_ca": tls.ca} if asks else {}
    return Settings(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "[::1]:1", "localhost:1", "127.9.9.9:1"])
def test_loopback_needs_nothing(listen: str) -> None:
    refuse_exposed(settings(listen=listen))


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "10.0.0.5:1", "[::]:1", "broker.example.org:1"])
def test_a_port_that_others_reach_is_refused_without_tls_and_certificates_of_clients(
    listen: str, tmp_path: Path
) -> None:
    ours = Authorities(tmp_path)
    with pytest.raises(CannotStart, match=r"and speaks no TLS: `tidemark init --secure DIR`"):
        refuse_exposed(settings(listen=listen))
    with pytest.raises(CannotStart, match=r"asks clients for no certificate \(tls_ca is not set\)"):
        refuse_exposed(settings(ours, asks=False, listen=listen))
    refuse_exposed(settings(ours, listen=listen))


def test_metrics_that_others_reach_need_tls_and_identities(tmp_path: Path) -> None:
    ours = Authorities(tmp_path)
    with pytest.raises(CannotStart, match=r"HTTP on 0.0.0.0 can be .*, and speaks no TLS"):
        refuse_exposed(settings(http_port=1, http_host="0.0.0.0"))
    refuse_exposed(settings(http_host="0.0.0.0"))  # no port is open there
    with pytest.raises(CannotStart, match=r"HTTP on 0.0.0.0 .* for no proof \(auth is off\)"):
        refuse_exposed(settings(ours, http_port=1, http_host="0.0.0.0"))
    proven = settings(ours, http_port=1, http_host="0.0.0.0", auth="on")
    refuse_exposed(proven)
    assert http_tls(proven) is not None


def test_insecure_starts_and_is_told_again_and_again() -> None:
    insecure = settings(listen="0.0.0.0:1", insecure=True)
    with structlog.testing.capture_logs() as logged:
        refuse_exposed(insecure)
    (entry,) = logged
    assert entry["event"] == "insecure"
    (warning,) = security_warnings(insecure, datetime.now(UTC))
    assert warning == "insecure: 0.0.0.0:1 can be reached by other machines, and speaks no TLS"


KAFKA = "kafka://127.0.0.1:1,10.0.0.5:9092/tm"


def told_of(given: Settings) -> list[str]:
    """What a start logs and `health` says."""
    with structlog.testing.capture_logs() as logged:
        refuse_exposed(given)
    told = [f"insecure: {it['because']}" for it in logged]
    assert security_warnings(given, datetime.now(UTC), plain_links(given)) == told
    return told


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"wal": KAFKA}, "insecure: Kafka at 10.0.0.5:9092 is spoken to without TLS .*client=FILE"),
        ({"meta": "etcd://e1/tm"}, "insecure: etcd at e1:2379 .*without TLS.*set meta_tls_ca"),
    ],
)
def test_a_store_on_another_machine_that_is_spoken_to_without_tls_is_told(
    given: dict[str, Any], expected: str
) -> None:
    (told,) = told_of(settings(**given))
    assert re.match(expected, told)


@pytest.mark.parametrize(
    ("spoken", "plain"),
    [("ssl", False), ("SASL_SSL", False), ("sasl_plaintext", True), ("plaintext", True)],
)
def test_the_properties_of_the_client_say_whether_kafka_is_spoken_to_with_tls(
    tmp_path: Path, spoken: str, *, plain: bool
) -> None:
    (tmp_path / "client").write_text(f"security.protocol={spoken}\n")
    told = told_of(settings(wal=f"{KAFKA}?client={tmp_path / 'client'}"))
    assert [f"security.protocol is {spoken})" in it for it in told] == [True] * plain


@pytest.mark.parametrize(
    "given",
    [
        {"wal": "kafka://localhost:1/tm", "meta": "etcd://127.0.0.1,[::1]/tm"},
        {"meta": "etcd://e1/tm", "meta_tls_ca": "ca.pem"},
        # Who connects says what is wrong with it.
        {"wal": f"{KAFKA}?client=/no/such/file"},
    ],
)
def test_of_other_stores_nothing_is_told(given: dict[str, Any]) -> None:
    assert told_of(settings(**given)) == []


def test_the_end_of_a_certificate_is_told_for_30_days(tmp_path: Path) -> None:
    secured = settings(Authorities(tmp_path))  # of 30 days
    now = datetime.now(UTC)
    assert security_warnings(secured, now - timedelta(days=1)) == []
    (soon,) = security_warnings(secured, now + timedelta(days=1))
    assert "server.pem expires at" in soon
    over, *_ = security_warnings(secured, now + timedelta(days=31))
    assert "server.pem expired at" in over
    assert security_warnings(settings(), now) == []


def test_the_end_of_an_authority_and_of_what_etcd_is_shown_is_told_too(tmp_path: Path) -> None:
    ours, now = Authorities(tmp_path), datetime.now(UTC)
    cert, key = ours.issue("shown", days=20)
    given = settings(ours, meta="etcd://h/p", meta_tls_cert=str(cert), meta_tls_key=str(key))
    # Of several in one file the first one that ends counts.
    ours.ca.write_bytes(ours.ca.read_bytes() + cert.read_bytes())
    told = security_warnings(given, now - timedelta(days=5))
    assert [it.partition(" at ")[0] for it in told] == [
        f"a certificate in {ours.ca} expires",
        f"a certificate in {cert} expires",
    ]
    assert "this process, by etcd, is not trusted then" in told[1]
    (_, expired, _) = security_warnings(given, now + timedelta(days=21))
    assert "expired at" in expired


def test_files_that_have_become_unusable_are_told(tmp_path: Path) -> None:
    ours = Authorities(tmp_path)
    secured = settings(ours)
    now = datetime.now(UTC) - timedelta(days=1)  # no certificate ends soon
    assert secured.tls_cert is not None
    usable = secured.tls_cert.read_bytes()
    secured.tls_cert.write_bytes(usable[:100])
    (warning,) = security_warnings(secured, now)
    assert f"TLS: no PEM certificate in {secured.tls_cert}" in warning
    assert "connections go on with what was read before, and a restart would fail" in warning
    secured.tls_cert.write_bytes(usable)
    assert security_warnings(secured, now) == []
    ours.ca.unlink()
    assert str(ours.ca) in "".join(security_warnings(secured, now))


def test_a_key_that_everyone_may_read_is_told(tmp_path: Path) -> None:
    secured = settings(Authorities(tmp_path))
    assert secured.tls_key is not None
    now = datetime.now(UTC) - timedelta(days=1)  # its certificate does not end soon
    secured.tls_key.chmod(0o644)
    (warning,) = security_warnings(secured, now)
    assert "every user of this machine may read the key" in warning
    secured.tls_key.chmod(0o640)
    assert security_warnings(secured, now) == []
    secured.tls_key.unlink()
    (warning,) = security_warnings(secured, now)
    assert f"TLS: cannot read {secured.tls_key}" in warning


def test_nodes_of_this_machine_need_its_address_in_the_certificate(tmp_path: Path) -> None:
    ours = Authorities(tmp_path)
    refuse_unnamed(None, "127.0.0.1")
    refuse_unnamed(ours.issue("server", "127.0.0.1", "fe80::1")[0], "127.0.0.1")
    refuse_unnamed(ours.issue("server", "fe80::1")[0], "fe80::1%lo")
    for hosts in ((), ("localhost",), ("10.0.0.5",)):
        cert, _ = ours.issue("other", *hosts)
        with pytest.raises(CannotStart, match=r"reach the coordinator at 127.0.0.1, which the"):
            refuse_unnamed(cert, "127.0.0.1")
    with pytest.raises(CannotStart, match="cannot read the certificate"):
        refuse_unnamed(tmp_path / "nowhere", "127.0.0.1")


def test_files_that_cannot_be_used_stop_the_start(tmp_path: Path) -> None:
    ours = Authorities(tmp_path)
    good = settings(ours)
    broken = good.model_copy(update={"tls_key": tmp_path / "nowhere"})
    for use in (server_tls, client_tls, refuse_exposed):
        with pytest.raises(CannotStart, match=r"TLS: cannot read .*nowhere"):
            use(broken)
    assert server_tls(settings()) is None
    assert client_tls(settings()) is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tls_cert": "a"}, "tls_cert is set without tls_key"),
        ({"tls_key": "a"}, "tls_key is set without tls_cert"),
        ({"tls_ca": "a"}, "tls_ca is set without tls_cert and tls_key"),
    ],
)
def test_half_of_tls_is_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadConfig, match=sentence):
        load_settings(given)
