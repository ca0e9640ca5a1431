"""The mark that all commits of one batch bear."""

import pytest

from schemas.properties.batch_mark import VCHANNELS_MAX, read_batch_mark, write_batch_mark
from schemas.properties.keys import BadProperty


def test_a_mark_says_which_batch_it_is_and_what_belongs_to_it() -> None:
    mark = read_batch_mark(write_batch_mark("a job: 7", 7, ["v1", "v0", "v1"]))
    assert (mark.total, dict(mark.counts)) == (3, {"v0": 1, "v1": 2})
    same = read_batch_mark(write_batch_mark("a job: 7", 7, ["v0"]))
    others = {
        read_batch_mark(write_batch_mark(*it, [])).id for it in (("a job", 7), ("a job: 7", 8))
    }
    assert same.id == mark.id
    assert len(others | {mark.id}) == 3
    assert 0 <= mark.id < 1 << 63


@pytest.mark.parametrize("names", [["a,b"], ["a=b"], [f"v{it}" for it in range(VCHANNELS_MAX + 1)]])
def test_of_many_vchannels_or_odd_names_only_the_number_is_told(names: list[str]) -> None:
    mark = read_batch_mark(write_batch_mark("job", 7, names))
    assert (mark.total, dict(mark.counts)) == (len(names), {})


@pytest.mark.parametrize("text", ["", "1", "x:1:", "1:y:", "1:2:v", "1:2:v=w"])
def test_what_is_no_mark_is_told(text: str) -> None:
    with pytest.raises(BadProperty, match=r"tidemark\.batch"):
        read_batch_mark(text)
