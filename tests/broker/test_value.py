"""Values that are made for every message: cheap to construct, compared and hashed by fields."""

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from broker.core.log.log_end import LogEnd
from broker.core.log.sequencer import Sequenced
from broker.model.batch import BatchKeys, BatchPart, NewBatch
from broker.model.message import Appended, ClosedTick, Delivered, NewMessage
from broker.model.producer_numbers import ProducedBatch, ProducerPart
from broker.model.record import Record, RecordSlice, RecordSliceInTxn
from broker.value import value

ROOT = Path(__file__).parents[2]


@value
class Place:
    """A value for the tests."""

    id: int
    tick: int = 0


@value
class NamedPlace(Place):
    """A value with one field more."""

    name: str = ""


@pytest.mark.parametrize(
    "made",
    [
        Appended, BatchKeys, BatchPart, ClosedTick, Delivered, LogEnd, NewBatch, NewMessage,
        ProducedBatch, ProducerPart, Record, RecordSlice, RecordSliceInTxn, Sequenced,
    ],
)  # fmt: skip
def test_the_constructor_of_a_value_of_the_hot_path_sets_its_fields_directly(made: type) -> None:
    code = made.__init__.__code__  # type: ignore[misc]
    assert "__setattr__" not in {*code.co_names, *code.co_freevars}


def test_values_are_equal_and_hash_by_their_fields() -> None:
    assert Place(1, 2) == Place(1, 2) != Place(1, 3)
    assert len({Place(1, 2), Place(1, 2), Place(1, 3)}) == 2
    assert NamedPlace(1, 2, "") != Place(1, 2)


def test_a_value_is_replaced_field_by_field_and_takes_no_other_attributes() -> None:
    assert replace(NamedPlace(1, 2, "a"), tick=5) == NamedPlace(1, 5, "a")
    assert [each.name for each in fields(NamedPlace)] == ["id", "tick", "name"]
    with pytest.raises(AttributeError):
        Place(1).other = 2  # type: ignore[attr-defined]


def test_mypy_refuses_to_assign_a_field_of_a_value(tmp_path: Path) -> None:
    program = tmp_path / "assigns.py"
    program.write_text(
        "from broker.model.message import Appended\n\n\n"
        "def change(landed: Appended) -> None:\n"
        "    landed.id = landed.id\n"
    )
    options = ["--config-file", "pyproject.toml", "--cache-dir", str(tmp_path / "cache")]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert 'Property "id" defined in "Appended" is read-only' in checked.stdout, checked.stderr
