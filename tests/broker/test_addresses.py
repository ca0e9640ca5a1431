"""HOST:PORT as people and peers write it, and as they must not."""

import pytest

from broker.addresses import split_address, split_addresses


@pytest.mark.parametrize(
    ("text", "parts"), [("h:1", ("h", 1)), ("[::1]:65535", ("::1", 65535)), ("a.b:0", ("a.b", 0))]
)
def test_an_address_is_host_and_port(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts


@pytest.mark.parametrize(
    "text", ["", "h", "h:", ":1", "h:65536", "h:-1", "h:²", "h:٣", "h:" + "9" * 5000]
)
def test_what_is_none_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        split_address(text)


def test_several_addresses_stand_between_commas() -> None:
    assert split_addresses("a:1, [::1]:2,b:0") == ["a:1", "[::1]:2", "b:0"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a:1,", "has an empty address"),
        (",", "has an empty address"),
        ("a:1,b", "'b' is not HOST:PORT"),
        ("a:1,b:2, a:1", "names a:1 twice"),
    ],
)
def test_a_list_that_is_wrong_is_refused_with_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        split_addresses(text)
