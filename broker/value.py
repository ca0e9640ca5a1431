"""The decorator of the immutable values that are made for every message.

Why not `@dataclass(frozen=True)`: its constructor sets each field by `object.__setattr__`, so a
record of ten fields takes 4.7 µs to make instead of 1.3, and one append makes about twenty values.
Here mypy alone refuses assignments. Use it where profiles show the constructor, and for whole
hierarchies: Python lets no frozen dataclass inherit from one that is not, or the reverse.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(made: type[T]) -> type[T]:
    """Make the class a slotted dataclass that is compared and hashed by its fields."""
    decorated: Callable[[type[T]], type[T]] = dataclass(slots=True, unsafe_hash=True)
    return decorated(made)
