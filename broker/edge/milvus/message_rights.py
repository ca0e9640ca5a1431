"""What the messages of a Produce stream, and a broadcast, need to be allowed."""

from collections.abc import Iterator
from typing import Final

from broker.core.security.grants import Action
from broker.edge.rpc.access.access import Actions
from broker.model.message import ALL_PCHANNEL_TYPES, EXCLUSIVE_TYPES, TXN_TYPES
from schemas.properties.keys import PCHANNEL_LEVEL, BadProperty
from schemas.wire import Malformed, ScannedRun, stored_properties

PRODUCE: Final = frozenset({Action.PRODUCE})
TXN: Final = frozenset({Action.TXN})
CHANGE: Final = frozenset({Action.DDL})
BROADCAST: Final = frozenset({Action.BROADCAST})


def right_for(kind: int) -> Actions:
    """What a message of this type needs on its vchannel."""
    if kind in TXN_TYPES:
        return TXN
    return CHANGE if kind in EXCLUSIVE_TYPES else PRODUCE


def acts_on_pchannel(run: ScannedRun) -> bool:
    """Whether a message of the run ends what is open on the whole pchannel."""
    kind = run.facts.type
    return kind in ALL_PCHANNEL_TYPES or (kind in EXCLUSIVE_TYPES and any(_levels(run)))


def _levels(run: ScannedRun) -> Iterator[bool]:
    for message in run.messages():
        try:
            yield PCHANNEL_LEVEL.read(stored_properties(message.stored))
        except (BadProperty, Malformed):
            continue  # its admission refuses it
