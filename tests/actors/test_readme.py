"""The example of the README, run as it stands."""

import ast
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import actors

README = Path(__file__).resolve().parents[2] / "actors" / "README.md"


async def test_the_example_of_the_readme_works() -> None:
    example = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    names = {name: getattr(actors, name) for name in actors.__all__}
    names |= {"dataclass": dataclass, "Sequence": Sequence, "__name__": "example"}
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    running = eval(compile(example, str(README), "exec", flags=flags), names)
    assert inspect.isawaitable(running)
    await running
