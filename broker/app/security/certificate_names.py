"""Whether a certificate names the address at which the processes of one machine call each other."""

import ipaddress
from pathlib import Path

from cryptography.x509 import (
    ExtensionNotFound,
    IPAddress,
    SubjectAlternativeName,
    load_pem_x509_certificates,
)

from broker.app.process_errors import CannotStart


def refuse_unnamed(cert: Path | None, address: str) -> None:
    """Raises CannotStart when the nodes of `serve --nodes` would not trust this certificate.

    They would try for a minute. `address`: where they reach the coordinator, an IP address.
    """
    if cert is None or ipaddress.ip_address(address.partition("%")[0]) in _addresses(cert):
        return
    raise CannotStart(
        f"the nodes reach the coordinator at {address}, which the certificate {cert} does not name;"
        " use one that does, as `tidemark init --secure DIR --host HOST` makes it, or start the"
        " nodes with `tidemark node --coordinator HOST:PORT`"
    )


def _addresses(cert: Path) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        extensions = load_pem_x509_certificates(cert.read_bytes())[0].extensions
        names = extensions.get_extension_for_class(SubjectAlternativeName)
    except ExtensionNotFound:
        return []
    except (OSError, ValueError) as error:
        raise CannotStart(f"TLS: cannot read the certificate {cert}: {error}") from None
    return [
        it
        for it in names.value.get_values_for_type(IPAddress)
        if isinstance(it, ipaddress.IPv4Address | ipaddress.IPv6Address)
    ]
