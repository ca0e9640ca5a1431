"""Which compaction a request may ask for."""

import pytest

from broker.core.compaction.compaction_limits import (
    TIME_MS_MAX,
    CompactionAsked,
    changed_compaction,
)
from broker.model.failure import Refused, StreamingCode
from broker.model.retention.compaction import Compaction


def test_what_is_not_named_stays() -> None:
    new = changed_compaction("c", None, CompactionAsked("compact", lag_ms=5), rows=False)
    assert new == Compaction(5, 86_400_000)
    later = changed_compaction("c", new, CompactionAsked(tombstone_ms=0), rows=False)
    assert later == Compaction(5, 0)
    assert changed_compaction("c", later, CompactionAsked(), rows=False) == later
    assert changed_compaction("c", later, CompactionAsked("delete"), rows=False) is None
    assert changed_compaction("c", None, CompactionAsked(), rows=True) is None


@pytest.mark.parametrize(
    ("asked", "rows", "cause"),
    [
        (CompactionAsked("both"), False, "cleanup is 'both'; it must be 'compact'"),
        (CompactionAsked(lag_ms=1), False, "of a compacted collection; set cleanup to 'compact'"),
        (CompactionAsked("delete", tombstone_ms=1), False, "or leave them out"),
        (CompactionAsked("compact"), True, "rows have no keys"),
        (CompactionAsked("compact", lag_ms=-1), False, "compaction_lag_ms is -1; it must be 0 to"),
        (CompactionAsked("compact", tombstone_ms=TIME_MS_MAX + 1), False, "check its unit"),
    ],
)
def test_anything_else_is_refused_with_what_was_wrong(
    asked: CompactionAsked, rows: bool, cause: str
) -> None:
    with pytest.raises(Refused, match=cause) as refused:
        changed_compaction("c", None, asked, rows=rows)
    assert refused.value.refusal.code is StreamingCode.INVALID_ARGUMENT


def test_a_request_that_names_nothing_says_so() -> None:
    assert CompactionAsked().says_nothing
    assert not CompactionAsked(tombstone_ms=0).says_nothing
