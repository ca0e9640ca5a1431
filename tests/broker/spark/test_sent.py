"""What is sent to executors, unpickled by a Python that lacks Tidemark or has another release."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GUARD_S = 120.0
SEND = """
import sys
import pyspark_tidemark
from pyspark import cloudpickle
from broker.spark.source.message_rows import COLUMNS, MessageShape
sys.stdout.buffer.write(cloudpickle.dumps(pyspark_tidemark._Partition(MessageShape({}, COLUMNS))))
"""
RECEIVE = """
import pickle, sys
{damage}
partition = pickle.loads(sys.stdin.buffer.read())
try:
    print(partition.value)
except RuntimeError as error:
    print(error)
"""


WITHOUT = """
class Finder:
    def find_spec(self, name, *_):
        if name == "broker":
            raise ModuleNotFoundError("No module named 'broker'", name=name)
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("", "MessageShape object"),
        (WITHOUT, "[TIDEMARK_NOT_INSTALLED] the Python of this executor,"),
        ("sys.modules['pyarrow'] = None", "no package 'pyarrow'"),
        (
            "import broker.spark.source.message_rows as it; del it.MessageShape",
            "[TIDEMARK_OTHER_RELEASE]",
        ),
    ],
)
def test_a_python_that_cannot_use_what_it_is_sent_says_why_in_one_line(
    damage: str, told: str
) -> None:
    paths = os.pathsep.join(
        [str(ROOT), str(ROOT / "broker/spark"), os.environ.get("PYTHONPATH", "")]
    )
    sent = b""
    for code in (SEND, RECEIVE.format(damage=damage)):
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=sent,
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            timeout=GUARD_S,
            check=True,
        )
        sent = done.stdout
    (line,) = sent.decode().splitlines()
    assert told in line
