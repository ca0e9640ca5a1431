"""Every target by its name, and the inputs that are kept for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
PREFIX = "fuzz_"


@dataclass(frozen=True, slots=True)
class Target:
    """A function that takes any bytes; what it raises is a defect."""

    name: str
    check: Callable[[bytes], None]
    seeds: Sequence[bytes]
    """Good inputs, made by our own writers."""
    bytes_max: int
    """Longer inputs would show nothing new."""
    kept: Sequence[bytes]
    """Inputs that reach what the seeds do not, and those that once found a defect."""

    @property
    def corpus(self) -> list[bytes]:
        """All inputs to begin with; never empty."""
        return [b"", *self.seeds, *self.kept]


def names() -> list[str]:
    """The names of all targets."""
    return sorted(it.stem.removeprefix(PREFIX) for it in HERE.glob(f"{PREFIX}*.py"))


def target(name: str) -> Target:
    """The target of this name, which is imported now."""
    module = import_module(f"tests.fuzz.{PREFIX}{name}")
    bytes_max = getattr(module, "INPUT_BYTES_MAX", 2048)
    return Target(name, module.check, tuple(module.SEEDS), bytes_max, tuple(kept(name)))


def kept(name: str) -> list[bytes]:
    """The kept inputs: one a line in hexadecimal digits; lines with # are for people."""
    path = CORPUS / f"{name}.hex"
    lines = path.read_text().splitlines() if path.exists() else []
    return [bytes.fromhex(it) for it in lines if it and not it.startswith("#")]
