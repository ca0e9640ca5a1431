"""Which stores on other machines a process speaks to without TLS: who is on the way reads them."""

from broker.addresses import is_outside, joined_address, split_address
from broker.etcd.place import etcd_place
from broker.process_settings import Settings
from broker.wal.kafka.confluent_settings import BadClientFile, ClientSettings
from broker.wal.kafka.kafka_url import kafka_place

ENCRYPTED = ("ssl", "sasl_ssl")


def plain_links(settings: Settings) -> list[str]:
    """A sentence for each store that other machines can listen to, with what to do about it."""
    return [*filter(None, (_plain_log(settings), _plain_metadata(settings)))]


def _plain_log(settings: Settings) -> str:
    if not settings.wal:
        return ""
    place = kafka_place(settings.wal)
    outside = [it for it in place.servers if is_outside(split_address(it)[0])]
    try:
        spoken = ClientSettings.of(place).common.get("security.protocol", "plaintext")
    except BadClientFile:
        return ""  # who connects says what is wrong with it
    if not outside or str(spoken).lower() in ENCRYPTED:
        return ""
    return (
        f"Kafka at {outside[0]} is spoken to without TLS (security.protocol is {spoken}): who is on"
        " the way reads and changes the log; write security.protocol=ssl into a file of client"
        " properties, and name it in the URL as client=FILE"
    )


def _plain_metadata(settings: Settings) -> str:
    if not settings.meta or settings.meta_tls_ca or settings.meta_tls_cert:
        return ""
    outside = [it for it in etcd_place(settings.meta).endpoints if is_outside(it[0])]
    if not outside:
        return ""
    return (
        f"etcd at {joined_address(*outside[0])} is spoken to without TLS: who is on the way reads"
        " and changes the metadata; set meta_tls_ca"
    )
