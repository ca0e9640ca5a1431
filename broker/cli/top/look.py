"""What the pages are made of: one state of the broker, its rates, and the rates before."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.cli.top.broker_state import BrokerState
from broker.cli.top.rates import STEPS, Flow, History, Rates
from broker.client import Collection
from broker.core.naming import collection_id_of

TICK_LOGICAL_BITS = 18
TOTAL_IN, TOTAL_OUT = "/in", "/out"
"""Names in the history; no collection's name begins with a slash."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a broker, with what is known from earlier looks."""

    broker: BrokerState
    rates: Rates = field(default_factory=Rates)
    history: History = field(default_factory=History)

    def age_s(self, tick: int) -> float | None:
        """The age of a tick by the local clock; None for tick 0."""
        # The broker's clock may be ahead of the local one.
        return max(0, self.broker.at_ms - (tick >> TICK_LOGICAL_BITS)) / 1000 if tick else None

    def since_s(self, unix_ms: int) -> float | None:
        """Seconds since a Unix time; None for 0, which stands for never."""
        return max(0, self.broker.at_ms - unix_ms) / 1000 if unix_ms else None

    def trend(self, name: str) -> list[float | None]:
        """The rates of the last minutes."""
        return self.history.series(name, self.broker.at_s, STEPS)


def label_of(collection: Collection) -> str:
    """The name of a collection; behind its database, unless that is the default one."""
    database, name = collection.database, collection.name
    return f"{database}/{name}" if database else name


def names_of_vchannels(broker: BrokerState) -> Mapping[str, str]:
    """The collection of each known vchannel."""
    return {
        vchannel: label_of(collection)
        for collection in broker.collections
        for vchannel in collection.vchannels
    }


def owner_of(vchannel: str, names: Mapping[str, str]) -> str:
    """The collection of a vchannel; else its id, for one of Milvus's or one that was dropped."""
    known = names.get(vchannel)
    if known is not None:
        return known
    number = collection_id_of(vchannel)
    return vchannel if number is None else f"id {number}"


def flows_by_collection(broker: BrokerState, rates: Rates) -> dict[str, Flow]:
    """The sums over the vchannels of each collection; without those that nothing went through."""
    names = names_of_vchannels(broker)
    found: dict[str, Flow] = {}
    for vchannel, flow in (rates.flows or {}).items():
        owner = owner_of(vchannel, names)
        found[owner] = found[owner].plus(flow) if owner in found else flow
    return found


def note_rates(history: History, broker: BrokerState, rates: Rates) -> None:
    """Add the rates of one look to the history; nothing when they are not known."""
    total = rates.total()
    if total is None:
        return
    flows = flows_by_collection(broker, rates)
    measured = {name: flow.messages for name, flow in flows.items()}
    measured |= {TOTAL_IN: total.messages, TOTAL_OUT: total.delivered}
    history.add(broker.at_s, rates.seconds, measured)
