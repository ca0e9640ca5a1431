"""What clients are given: the address set, the one listened on, or the only outside one."""

import socket

import pytest
from pydantic import ValidationError

from broker.addresses import split_advertised
from broker.app import CannotStart, bind
from broker.app.advertised import local_host, outside_addresses, with_advertised
from broker.process_settings import Settings

MACHINE = ("127.0.0.1", "::1", "fe80::1%eth0", "169.254.7.7")


def advertised(listen: str, *outside: str, advertise: str = "") -> str:
    """What a process advertises on a machine with these outside addresses; PORT for its port."""
    with bind(listen) as bound:
        settings = Settings(listen=listen, advertise=advertise)
        found = with_advertised(settings, bound, lambda: (*MACHINE, *outside)).advertise
        return found.replace(str(bound.getsockname()[1]), "PORT")


@pytest.mark.parametrize(
    ("advertise", "given"),
    [
        ("", "127.0.0.1:PORT"),
        ("broker.example.org", "broker.example.org:PORT"),
        ("broker.example.org:7", "broker.example.org:7"),
        ("fd00::5", "[fd00::5]:PORT"),
        ("[fd00::5]", "[fd00::5]:PORT"),
        ("[fd00::5]:7", "[fd00::5]:7"),
    ],
)
def test_what_is_set_is_completed_with_the_port(advertise: str, given: str) -> None:
    assert advertised("127.0.0.1:0", advertise=advertise) == given


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "0:0", "[::]:0", "[::ffff:0.0.0.0]:0"])
def test_a_wildcard_is_given_to_nobody(listen: str) -> None:
    with pytest.raises(CannotStart, match=r"pass --advertise HOST\[:PORT\].*: none\)"):
        advertised(listen)
    with pytest.raises(CannotStart, match=r"this machine: 10\.0\.0\.5, 10\.0\.0\.6\)"):
        advertised(listen, "10.0.0.6", "10.0.0.5")
    assert advertised(listen, "10.0.0.5") == "10.0.0.5:PORT"
    assert advertised(listen, "10.0.0.5", "10.0.0.6", advertise="10.0.0.6") == "10.0.0.6:PORT"


def test_an_ipv4_wildcard_does_not_listen_on_ipv6() -> None:
    assert advertised("0.0.0.0:0", "10.0.0.5", "fd00::5") == "10.0.0.5:PORT"
    assert advertised("[::]:0", "fd00::5") == "[fd00::5]:PORT"
    with pytest.raises(CannotStart, match=r"10\.0\.0\.5, fd00::5\)"):
        advertised("[::]:0", "10.0.0.5", "fd00::5")


@pytest.mark.parametrize("advertise", ["0.0.0.0", "0.0.0.0:5", "[::]:5", "::", "h:0", "h:x", "a b"])
def test_what_no_client_can_connect_to_is_refused(advertise: str) -> None:
    with pytest.raises(ValidationError, match="advertise"):
        Settings(advertise=advertise)
    with pytest.raises(ValueError, match=r"no address that a client|is not HOST:PORT"):
        split_advertised(advertise)


@pytest.mark.parametrize(
    ("bound", "local"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("10.0.0.5", "10.0.0.5"),
        ("::ffff:0.0.0.0", "127.0.0.1"),
    ],
)
def test_processes_of_the_machine_reach_a_wildcard_on_loopback(bound: str, local: str) -> None:
    assert local_host(bound) == local


def test_the_real_addresses_of_this_machine_can_be_listed() -> None:
    assert "127.0.0.1" in outside_addresses()
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert with_advertised(Settings(), bound).advertise.startswith("127.0.0.1:")
