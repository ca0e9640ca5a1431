"""The URL of a log in Kafka: what it says, and what is wrong with one that is half given."""

import pytest

from broker.wal.kafka.kafka_url import BadWalUrl, KafkaPlace, checked_wal, kafka_place


def test_a_url_says_servers_prefix_and_how_safely_the_log_is_kept() -> None:
    place = kafka_place("kafka://a:9092,[::1]:9093/tide.mark?replication=5&min_isr=3&sync=always")
    assert place == KafkaPlace(("a:9092", "[::1]:9093"), "tide.mark", 5, 3, syncs=True)
    assert place.topic("by-dev-rootcoord-dml_0") == "tide.mark.by-dev-rootcoord-dml_0"
    assert place.shown == "kafka://a:9092,[::1]:9093/tide.mark"


def test_a_server_without_a_port_has_that_of_kafka() -> None:
    assert kafka_place("kafka://a,b:9093,[::1]/p").servers == ("a:9092", "b:9093", "[::1]:9092")


@pytest.mark.parametrize(
    ("query", "replication", "min_isr", "syncs"),
    [
        ("", 3, 2, False),
        ("?replication=1", 1, 1, True),
        ("?replication=2", 2, 1, True),
        ("?replication=5", 5, 4, False),
        ("?min_isr=1", 3, 1, True),
        ("?replication=1&sync=replicas", 1, 1, False),
    ],
)
def test_without_a_second_copy_in_sync_the_first_one_is_synced(
    query: str, replication: int, min_isr: int, syncs: bool
) -> None:
    place = kafka_place(f"kafka://a:1/p{query}")
    assert (place.replication, place.min_isr, place.syncs) == (replication, min_isr, syncs)


def test_a_file_with_properties_of_the_client_may_be_named() -> None:
    assert kafka_place("kafka://a:1/p?client=/etc/k.properties").client == "/etc/k.properties"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("kafka://x", "the prefix of the topics is ''"),
        ("kafka://a b/p", "the server 'a b' is not HOST or HOST:PORT"),
        ("kafka://::1/p", "the server '::1' is not HOST or HOST:PORT"),
        ("kafka:///p", "the server '' is not HOST or HOST:PORT"),
        ("kafka://a:1,/p", "the server '' is not HOST or HOST:PORT"),
        ("kafka://a:99999/p", "the server 'a:99999' is not HOST or HOST:PORT"),
        ("kafka://a:0/p", "has port 0"),
        ("kafka://a:1", "the prefix of the topics is ''"),
        ("kafka://a:1/", "the prefix of the topics is ''"),
        ("kafka://a:1/p/q", "the prefix of the topics is 'p/q'"),
        ("kafka://a:1/..", "the prefix of the topics is '..'"),
        ("kafka://a:1/" + "p" * 121, "needs 1 to 120 letters"),
        ("pulsar://a:1/p", "the scheme must be kafka, not 'pulsar'"),
        ("a:1/p", "the scheme must be kafka"),
        ("kafka://user:pw@a:1/p", "it holds a user"),
        ("kafka://a:1/p#x", "#x has no meaning here"),
        ("kafka://a:1/p?replication", "?replication is not NAME=VALUE"),
        ("kafka://a:1/p?replication=", "replication has no value"),
        ("kafka://a:1/p?replication=0", "must be a number from 1 to 100"),
        ("kafka://a:1/p?replication=two", "must be a number from 1 to 100"),
        ("kafka://a:1/p?replication=99999", "must be a number from 1 to 100"),
        ("kafka://a:1/p?min_isr=4", "min_isr=4 is more than replication=3"),
        ("kafka://a:1/p?acks=1", "'acks' is unknown; known are replication"),
        ("kafka://a:1/p?min_isr=1&min_isr=2", "min_isr stands twice"),
        ("kafka://a:1/p?sync=never", "sync=never must be always or replicas"),
    ],
)
def test_a_wrong_or_half_given_url_says_what_is_wrong_and_how_to_write_it(
    url: str, said: str
) -> None:
    with pytest.raises(BadWalUrl) as caught:
        checked_wal(url)
    assert said in str(caught.value)
    assert "write it as kafka://10.0.0.5:9092" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("kafka://user:hunter2@a/p", "'kafka://...@a/p': it holds a user or a password"),
        ("kafka://user:/hunter2@a/p", "'kafka://...@a/p': it holds a user or a password"),
        (
            "kafka://a/p?sasl.password=hunter2",
            "'kafka://a/p?sasl.password=...': 'sasl.password' is unknown",
        ),
        ("kafka://a/p?x=1&hunter2", "'kafka://a/p?x=...': 'x' is unknown"),
        ("kafka://a/p#pw=hunter2", "'kafka://a/p#pw=...': 'pw' is unknown"),
        ("kafka://a/p&pw=hunter2", "'kafka://a/p&pw=...': 'pw' is unknown"),
        ("https://u:hunter2@a/p", "'https://...@a/p': the scheme must be kafka, not 'https'"),
        ("u:hunter2@kafka://a/p", "the scheme must be kafka, not '...@kafka'"),
    ],
)
def test_what_may_be_secret_in_a_url_is_not_repeated(url: str, said: str) -> None:
    with pytest.raises(BadWalUrl) as caught:
        checked_wal(url)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_of_the_client_may_have_any_letter_in_its_name() -> None:
    assert kafka_place("kafka://a:1/p?client=/etc/a@b?c=d").client == "/etc/a@b?c=d"


def test_no_url_means_segment_files() -> None:
    assert checked_wal("") == ""
