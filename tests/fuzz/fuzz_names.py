"""Names of everything: what may be one, what it stands for, and that none leads out of a folder."""

from pathlib import PurePosixPath

from broker.core.groups.group_rules import name_refusal as group_refusal
from broker.core.master.segment_records import channel_number
from broker.core.name_lookup import found_name
from broker.core.naming import (
    belongs_to,
    collection_id_of,
    collection_name_refusal,
    is_control_channel,
    is_physical,
    looks_like_channel,
    pchannel_name_refusal,
    pchannel_names,
    pchannel_of,
)
from broker.core.rocksmq.queue_keys import META, parsed
from broker.core.time.named_cursor import name_refusal as cursor_refusal
from broker.model.failure import Refused

PCHANNELS = pchannel_names("by-dev", 2)


def check(data: bytes) -> None:
    """Every text is a name or refused; a name of a folder is one step below its parent."""
    name = data.decode("utf-8", "surrogateescape")
    if pchannel_name_refusal(name) is None:
        _stays_inside(name)
    if collection_name_refusal(name) is None:
        _stays_inside(name)
        assert not looks_like_channel(name)
    group_refusal(name)
    cursor_refusal(name)
    collection_id_of(name)
    is_control_channel(name)
    assert is_physical(name) == (pchannel_of(name) == name)
    assert belongs_to(name, pchannel_of(name))
    channel_number(name)
    parsed(META + data)
    try:
        found_name(name, (), PCHANNELS)
    except Refused:
        pass


def _stays_inside(name: str) -> None:
    assert name not in ("", ".", "..")
    assert PurePosixPath(name).parts == (name,), f"{name!r} is a path"
    assert name.isascii()
    assert name.isprintable()


INPUT_BYTES_MAX = 8192
"""More digits than Python converts."""
SEEDS = (
    b"trains",
    b"by-dev-rootcoord-dml_0",
    b"by-dev-rootcoord-dml_1_4511v0",
    b"by-dev-rootcoord-dml_0_vcchan",
    b"../../etc/passwd",
    b"a/../b",
    b"a\x00b",
    b"_" + b"9" * 30 + b"v0",
    b"_" + b"9" * 5000 + b"v0",
    b"_" + b"0" * 5000 + b"7v0",
    b"a-rootcoord-dml_" + b"9" * 5000,
    b"chan/page/" + b"9" * 5000,
    "chan/page/²".encode(),
    b"chan/page/12",
    b"group/chan/current_id",
    b"..",
    "trä\u200bins\n".encode(),
)
