"""Every parser of bytes from outside: the kept corpus, and some thousands of inputs by a seed.

`scripts/fuzz.py` runs the same targets for as long as one likes, led by coverage.
"""

import pytest

from tests.fuzz.mutations import inputs
from tests.fuzz.targets import names, target

INPUTS = 3000
SEED = 16


@pytest.mark.parametrize("name", names())
def test_no_input_of_the_corpus_gets_anything_but_an_answer_or_a_typed_error(name: str) -> None:
    one = target(name)
    for data in one.corpus:
        one.check(data)


@pytest.mark.parametrize("name", names())
def test_no_changed_input_gets_anything_but_an_answer_or_a_typed_error(name: str) -> None:
    one = target(name)
    for data in inputs(one.corpus, SEED, INPUTS, one.bytes_max):
        try:
            one.check(data)
        except Exception as error:
            error.add_note(f"the input, for tests/fuzz/corpus/{name}.hex: {data.hex()}")
            raise


@pytest.mark.parametrize("name", names())
def test_the_seeds_are_understood_by_their_target(name: str) -> None:
    """Else it would try the refusal of garbage alone."""
    assert target(name).seeds


def test_the_same_seed_makes_the_same_inputs() -> None:
    assert list(inputs([b"abc", b""], 5, 100)) == list(inputs([b"abc", b""], 5, 100))
