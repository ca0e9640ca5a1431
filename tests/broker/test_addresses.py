"""HOST:PORT as people and peers write it, and as they must not."""

import pytest

from broker.addresses import split_address


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
