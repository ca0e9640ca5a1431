"""Which table is used, and which errors are reported."""

from hypothesis import given
from hypothesis import strategies as st

from broker.client.net.assignment_table import AssignmentTable
from broker.model.channel import Assignment, AssignmentVersion, NodeAssignment, PChannel
from broker.model.ids import NodeId, PChannelName, Term

NAME = PChannelName("by-dev-rootcoord-dml_0")
VERSIONS = st.builds(AssignmentVersion, st.integers(0, 3), st.integers(0, 3))


def table(version: AssignmentVersion, *channels: PChannel) -> Assignment:
    return Assignment(version, (NodeAssignment(NodeId(1), "127.0.0.1:1", channels),), NAME, 2)


@given(st.lists(VERSIONS, min_size=1))
def test_the_newest_table_wins_in_whatever_order_they_come(
    versions: list[AssignmentVersion],
) -> None:
    known = AssignmentTable()
    assert not known.known
    for version in versions:
        term = Term(1 + version.incarnation * 10 + version.change)
        known.accept(table(version, PChannel(NAME, term)))
    newest = max(versions)
    found = known.find(NAME)
    assert found is not None
    assert found.channel.term == 1 + newest.incarnation * 10 + newest.change


def test_a_newer_table_replaces_the_older_one_completely() -> None:
    known = AssignmentTable()
    known.accept(table(AssignmentVersion(1, 1), PChannel(NAME, Term(2))))
    known.accept(table(AssignmentVersion(1, 2)))
    assert known.find(NAME) is None


def test_a_wrong_assignment_is_reported_once_a_stream() -> None:
    known = AssignmentTable()
    assert known.should_report(PChannel(NAME, Term(2)))
    assert not known.should_report(PChannel(NAME, Term(2)))
    assert known.should_report(PChannel(NAME, Term(3)))
    known.stream_opened()
    assert known.should_report(PChannel(NAME, Term(3)))
