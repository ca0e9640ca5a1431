"""What can be raised, and that the README tells the same of it as the types do."""

import pickle
import re
from pathlib import Path

import pytest

from broker import client
from broker.client.errors import ServerRefusal, TidemarkError
from broker.model.failure import StreamingCode

README = Path(__file__).parents[3] / "README.md"
ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| ([\d, ]*)\| (yes|no|if all are) \|", re.MULTILINE)


def told() -> dict[str, tuple[set[int], bool]]:
    """Of each name in the table: the codes beside it, and whether to try again."""
    found = {}
    for names, codes, retriable in ROW.findall(README.read_text()):
        for name in re.findall(r"\w+", names):
            found[name] = ({int(it) for it in re.findall(r"\d+", codes)}, retriable == "yes")
    return found


REFUSALS = ServerRefusal.__subclasses__()


@pytest.mark.parametrize("kind", REFUSALS)
def test_the_readme_tells_the_code_of_each_refusal_and_whether_to_try_again(
    kind: type[ServerRefusal],
) -> None:
    codes, retriable = told()[kind.__name__]
    assert kind.expected in codes
    assert kind.retriable == retriable
    assert kind is getattr(client, kind.__name__)


def test_every_code_is_told_and_every_name_exists() -> None:
    codes = {code for found, _ in told().values() for code in found}
    assert codes == {code for code in StreamingCode if code is not StreamingCode.OK}
    for name, (_, retriable) in told().items():
        kind = getattr(client, name)
        assert issubclass(kind, TidemarkError)
        assert kind.retriable == retriable


def test_a_refusal_survives_pickling_as_spark_needs() -> None:
    for kind in REFUSALS:
        again = pickle.loads(pickle.dumps(kind("because")))
        assert (type(again), again.cause, again.code) == (kind, "because", kind.expected)
