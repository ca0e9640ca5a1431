"""The messages of the allocator of ids."""

from dataclasses import dataclass

from actors import Request
from broker.model.master.id_range import IdRange


@dataclass(frozen=True, slots=True)
class TakeIds(Request[IdRange]):
    """Consecutive ids that nobody else gets; see `IdSource.take`, which has the refusals."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class ReserveAhead:
    """A timer: extend the reserved range when half of it is used."""


IdMessage = TakeIds | ReserveAhead
