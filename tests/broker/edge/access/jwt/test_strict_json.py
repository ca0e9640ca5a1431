"""JSON that two readers could understand differently."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.edge.access.jwt.strict_json import DEPTH_MAX, json_object


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'"text"',
        b"{",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1, "a": 1}',
        b'{"a": {"b": 1, "b": 2}}',
        '{"a": 1}'.encode("utf-16"),
        '{"a": 1}'.encode("utf-32-le"),
        b"\xef\xbb\xbf{}",
        b'{"a": "\xff"}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[" * 8000,
        b'{"a":' * 1200,
        b'{"a":' * 500 + b"1" + b"}" * 500,
        b'{"a":' + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"}",
    ],
)
def test_what_two_readers_could_understand_differently_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        json_object(data)


def test_nesting_up_to_the_limit_is_read() -> None:
    inner = DEPTH_MAX - 1
    assert json_object(b'{"a":' + b"[" * inner + b"]" * inner + b"}")


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans())))
def test_objects_are_read_as_they_were_written(value: dict[str, object]) -> None:
    assert json_object(json.dumps(value).encode()) == value


# Without the end of an object it is none: hypothesis may draw a valid one.
@given(st.binary(max_size=60).map(lambda it: it.replace(b"}", b"")))
def test_an_error_holds_nothing_of_the_data(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^it (is|has) ") as error:
        json_object(data)
    assert type(error.value) is ValueError
