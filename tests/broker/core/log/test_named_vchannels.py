"""The vchannels that a log has named: never one that it has not, never one denied that it has."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.log.named_vchannels import NamedVChannels
from broker.model.ids import MessageId

names = st.sampled_from([f"p_{it}v0" for it in range(6)])


@given(st.lists(names, max_size=20), st.integers(0, 20), st.lists(names, max_size=6))
def test_a_search_answers_as_a_look_at_the_whole_log(
    log: list[str], opened: int, asked: list[str]
) -> None:
    """Message i of `log` names a vchannel; those from `opened` on are stored after the opening."""
    named = NamedVChannels(MessageId(min(opened, len(log))))
    named.add(log[opened:])
    for name in asked:
        while (known := named.knows(name)) is None:
            at = named.searched_to
            named.add_found({log[at]}, MessageId(at + 1))
        assert known == (name in log)


def test_what_is_known_needs_no_search() -> None:
    named = NamedVChannels(MessageId(1000))
    named.add(["p_1v0"])
    assert named.knows("p_1v0")
    assert named.knows("p_2v0") is None
    assert named.searched_to == 0


def test_with_too_many_names_none_is_denied() -> None:
    named = NamedVChannels(MessageId(0), names_max=2)
    named.add(["a", "b"])
    assert named.knows("c") is False
    named.add(["d"])
    assert named.knows("c")
