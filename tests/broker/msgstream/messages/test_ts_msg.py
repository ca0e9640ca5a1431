"""Positions as checkpoints."""

import pytest

from broker.msgstream import BadPosition, MsgPosition


def test_a_position_is_a_checkpoint_that_is_stored_as_bytes() -> None:
    position = MsgPosition("by-dev_0_7v0", b"m\x00\x01", "readers", 2**63 + 5)
    assert MsgPosition.parse(bytes(position)) == position


@pytest.mark.parametrize("stored", [b"", b"no position", b"\x12\x03abc"])
def test_bytes_that_are_no_position_are_refused(stored: bytes) -> None:
    with pytest.raises(BadPosition, match="is not a stored position"):
        MsgPosition.parse(stored)
