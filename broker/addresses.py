"""HOST:PORT as text and as its parts."""

import ipaddress


def split_address(address: str) -> tuple[str, int]:
    """`HOST:PORT` or `[V6]:PORT` as a pair. Raises ValueError saying what to write instead."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not _is_port(port):
        raise ValueError(f"{address!r} is not HOST:PORT, such as 127.0.0.1:19531")
    return host.strip("[]"), int(port)


def split_addresses(text: str) -> list[str]:
    """Each HOST:PORT of a list with commas, in order. Raises ValueError saying what is wrong."""
    found = [it.strip() for it in text.split(",")]
    for number, address in enumerate(found):
        if not address:
            raise ValueError(f"{text!r} has an empty address; write HOST:PORT,HOST:PORT")
        split_address(address)
        if address in found[:number]:
            raise ValueError(f"{text!r} names {address} twice; name each coordinator once")
    return found


def split_advertised(address: str) -> tuple[str, int | None]:
    """`HOST`, `HOST:PORT`, `V6` or `[V6]:PORT` as a pair; None for no port. Raises ValueError."""
    host, port = address, None
    if _is_v6(address.strip("[]")):
        host = address.strip("[]")
    elif ":" in address:
        host, port = split_address(address)
    try:
        wildcard = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        wildcard = False  # a name
    if wildcard or port == 0 or not host or any(it.isspace() or it in "[]/" for it in host):
        raise ValueError(
            f"{address!r} is no address that a client can connect to; use HOST or HOST:PORT, such"
            " as 10.0.0.5 or broker.example.org:19531"
        )
    return host, port


def joined_address(host: str, port: int) -> str:
    """`HOST:PORT`, or `[V6]:PORT`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_outside(host: str) -> bool:
    """Whether it may be another machine's; a name other than localhost may mean any address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host != "localhost"
    return not (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _is_port(text: str) -> bool:
    # ASCII and short: `isdigit` takes digits that `int` does not, and `int` refuses very long ones.
    return text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= 65535


def _is_v6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False
