"""Names of channels and collections, against the rules of Milvus's clients."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core import naming
from broker.model.failure import StreamingCode
from broker.model.ids import CollectionId, PChannelName

HOST = PChannelName("by-dev-rootcoord-dml_0")

clusters = st.from_regex(r"[a-z0-9][a-zA-Z0-9.-]{0,20}", fullmatch=True)
pchannels = st.builds(
    lambda cluster, index: naming.pchannel_names(cluster, index + 1)[index],
    clusters,
    st.integers(0, 30),
)


def test_pchannels_are_numbered_from_zero() -> None:
    assert naming.pchannel_names("by-dev", 2) == (HOST, "by-dev-rootcoord-dml_1")


def test_a_vchannel_names_its_pchannel_its_collection_and_its_shard() -> None:
    name = naming.vchannel_name(PChannelName("by-dev-rootcoord-dml_3"), CollectionId(456789), 0)
    assert name == "by-dev-rootcoord-dml_3_456789v0"


def test_the_control_channel_lives_on_the_first_pchannel_in_string_order() -> None:
    assert naming.control_host(tuple(reversed(naming.pchannel_names("by-dev", 16)))) == HOST
    assert naming.control_host((PChannelName("p_2"), PChannelName("p_10"))) == "p_10"


def test_the_control_channel_is_known_by_its_ending_and_belongs_to_its_host() -> None:
    name = "by-dev-rootcoord-dml_0_vcchan"
    assert naming.is_control_channel(name)
    assert not naming.is_control_channel(HOST)
    assert naming.belongs_to(name, HOST)


@pytest.mark.parametrize(
    ("name", "physical"),
    [
        ("by-dev-rootcoord-dml_0", True),
        ("by-dev-rootcoord-dml_0_42v0", False),
        ("by-dev-rootcoord-dml_0_vcchan", False),
        ("plain", True),
        ("very-plain", True),
        ("", True),
        ("mis_classified_v", False),
    ],
)
def test_a_name_is_physical_without_a_v_after_its_last_underscore(
    name: str, physical: bool
) -> None:
    assert naming.is_physical(name) is physical


@given(st.text("v_-0a"), st.text("v_-0a"))
def test_a_name_belongs_to_its_pchannel_alone(name: str, other: str) -> None:
    assert naming.belongs_to(name, naming.pchannel_of(name))
    assert naming.belongs_to(name, PChannelName(other)) == (naming.pchannel_of(name) == other)


@given(pchannels, st.integers(0, 2**63 - 1), st.integers(0, 1023))
def test_every_vchannel_that_is_made_can_be_taken_apart(
    pchannel: PChannelName, collection: int, shard: int
) -> None:
    name = naming.vchannel_name(pchannel, CollectionId(collection), shard)
    assert naming.pchannel_of(name) == pchannel
    assert naming.collection_id_of(name) == collection
    assert naming.is_physical(pchannel)
    assert not naming.is_physical(name)


@given(st.text(max_size=30), pchannels)
def test_a_name_belongs_to_exactly_the_pchannel_it_maps_to(name: str, pchannel: str) -> None:
    assert naming.belongs_to(name, naming.pchannel_of(name))
    assert naming.belongs_to(name, PChannelName(pchannel)) is (naming.pchannel_of(name) == pchannel)


def test_any_v_name_under_a_pchannel_belongs_to_it_without_creation() -> None:
    assert naming.belongs_to("by-dev-rootcoord-dml_0_anything-v", HOST)
    assert not naming.belongs_to("by-dev-rootcoord-dml_01_5v0", HOST)


@pytest.mark.parametrize(
    "name",
    [
        "by-dev-rootcoord-dml_0",
        "by-dev-rootcoord-dml_0_vcchan",
        "x_99999999999999999999v0",
        f"x_{'9' * 5000}v0",
    ],
)
def test_a_channel_of_no_collection_has_no_collection_id(name: str) -> None:
    assert naming.collection_id_of(name) is None


def test_leading_zeros_of_a_collection_id_count_nothing() -> None:
    assert naming.collection_id_of(f"x_{'0' * 5000}7v0") == 7
    assert naming.collection_id_of("x_0v0") == 0


@pytest.mark.parametrize(
    "name", ["flights", "_x", "A1$_", "a-b", "my.coll", "events_v2", "a" * 255]
)
def test_plain_collection_names_pass(name: str) -> None:
    assert naming.collection_name_refusal(name) is None


@pytest.mark.parametrize(
    "name",
    ["", " flights", "flights ", "1st", "-a", ".", "a/b", "$a", "é", "a\n", "a\0b", "a" * 256],
)
def test_other_collection_names_are_refused_with_the_name_in_the_text(name: str) -> None:
    refusal = naming.collection_name_refusal(name)
    assert refusal is not None
    assert refusal.code is StreamingCode.INVALID_ARGUMENT
    assert repr(name[:70])[:-1] in refusal.cause
    assert len(refusal.cause) < 250


@pytest.mark.parametrize(
    "name", ["by-dev-rootcoord-dml_0", "x-rootcoord-dml_99", "a_1v0", "a-b_7v12", "my_vcchan"]
)
def test_a_collection_name_that_looks_like_a_channel_is_refused_with_the_reason(name: str) -> None:
    refusal = naming.collection_name_refusal(name)
    assert refusal is not None
    assert refusal.code is StreamingCode.INVALID_ARGUMENT
    assert f"{name!r} could be taken for a channel" in refusal.cause


channel_parts = st.sampled_from(
    ["by-dev", "a", "_", "-", ".", "-rootcoord-dml_", "0", "100", "v", "vcchan", "_1v0"]
)
channel_like = st.lists(channel_parts, max_size=8).map("".join)


@given(st.text(max_size=300) | channel_like, pchannels, st.integers(0, 2**63 - 1))
def test_no_collection_name_that_passes_is_a_channel_name(
    name: str, pchannel: PChannelName, collection: int
) -> None:
    if naming.collection_name_refusal(name) is not None:
        return
    assert not naming.looks_like_channel(name)
    assert naming.pchannel_of(name) != pchannel
    assert naming.collection_id_of(name) is None
    assert name != naming.vchannel_name(pchannel, CollectionId(collection), 0)
    assert "\n" not in name


@pytest.mark.parametrize("name", ["by-dev-rootcoord-dml_0", "a", "9.x_1", "a" * 128])
def test_plain_pchannel_names_pass(name: str) -> None:
    assert naming.pchannel_name_refusal(name) is None


@pytest.mark.parametrize("name", ["", "a/b", "..", "-a", "a b", "a\n", "ä", "a" * 129])
def test_a_pchannel_name_that_would_break_a_path_is_refused(name: str) -> None:
    refusal = naming.pchannel_name_refusal(name)
    assert refusal is not None
    assert "pchannel name" in refusal.cause
    assert "\n" not in refusal.cause


def test_the_control_channel_is_on_the_pchannel_that_hosts_it() -> None:
    control = naming.control_channel(PChannelName("by-dev-rootcoord-dml_0"))
    assert control == "by-dev-rootcoord-dml_0_vcchan"
    assert naming.is_control_channel(control)


@pytest.mark.parametrize(
    ("ending", "fault"),
    [
        ("", ""),
        ("_4511v0", ""),
        ("_vcchan", ""),
        ("_any name-v", ""),
        ("0_4511v0", "is not on pchannel"),
        ("_../../v", ""),
        ("_a\0v", "printable ASCII"),
        ("_a\nforged v", "printable ASCII"),
        ("_\u202ev", "printable ASCII"),
        ("_\u0430v0", "printable ASCII"),
        ("_v" + "9" * 300, "has 324 characters; at most 256"),
    ],
)
def test_a_new_vchannel_is_on_its_pchannel_plain_text_and_not_long(ending: str, fault: str) -> None:
    found = naming.new_vchannel_fault(HOST + ending, HOST)
    assert (fault in found) if fault else (found == "")
    assert len(found) < 300
    assert found.isprintable()
