"""A change by a client of Milvus that could not be applied."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clash:
    """`cause`: what the change was, and why it did not fit the table. `id`: to clear it."""

    id: str
    cause: str
