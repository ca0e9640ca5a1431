"""The sink's options: what is understood, and the words of every refusal."""

import pytest

from broker.spark.refusals import BadOption
from broker.spark.server_options import Server
from broker.spark.sink.sink_options import SinkOptions, parse_sink


def test_what_is_not_said_has_its_default() -> None:
    expected = SinkOptions(Server("127.0.0.1:19531", "by-dev"), "", None, "", None, 60.0)
    assert parse_sink({"checkpointLocation": "/tmp"}, streaming=True) == expected


def test_names_are_understood_in_any_case_and_the_topic_may_be_the_path() -> None:
    given = {"SERVER": "h:1", "path": " flights ", "Key": "k", "APPID": "a", "timeout": "500ms"}
    expected = SinkOptions(Server("h:1", "by-dev"), "flights", "k", "a", None, 0.5)
    assert parse_sink(given, streaming=True) == expected


def test_rows_may_have_a_time_to_live() -> None:
    assert parse_sink({"topic": "t", "ttl": "2h"}, streaming=True).ttl_s == 7200


def test_a_batch_may_say_which_one_it_is() -> None:
    options = parse_sink({"topic": "t", "appId": "a", "batchId": "7"}, streaming=False)
    assert (options.app, options.batch) == ("a", 7)


@pytest.mark.parametrize(
    ("given", "streaming", "words"),
    [
        ({"tpic": "x"}, True, "'tpic' is 'x': unknown; did you mean topic?"),
        ({"topic": " "}, True, "'topic' is ' ': it is empty; give a name"),
        ({"topic": "a", "path": "b"}, True, "'topic' is 'a': the path 'b' is set, too"),
        ({"key": ""}, True, "'key' is ''"),
        ({"partition": " "}, True, "'partition' is ' ': it is empty; give a name"),
        ({"appId": ""}, True, "'appId' is ''"),
        ({"appId": "a", "batchId": "1"}, True, "numbers its batches itself"),
        ({"batchId": "1"}, False, "give appId, too"),
        ({"appId": "a"}, False, "give batchId, too"),
        ({"appId": "a", "batchId": "-1"}, False, "'batchId' is '-1': use a whole number"),
        ({"timeout": "soon"}, True, "'timeout' is 'soon': use a number"),
        ({"timeout": "0s"}, True, "'timeout' is '0s'"),
        ({"ttl": "0s"}, True, "'ttl' is '0s': use a number above 0"),
        ({"ttl": "9000h"}, True, "'ttl' is '9000h': use at most 8784h, 366 days"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_would_do(
    given: dict[str, str], streaming: bool, words: str
) -> None:
    with pytest.raises(BadOption, match=r"^\[TIDEMARK_BAD_OPTION\] ") as caught:
        parse_sink(given, streaming=streaming)
    assert words in str(caught.value)
