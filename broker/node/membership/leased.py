"""What a lease changes in a node: how long it may write, and what the coordinator sets."""

from dataclasses import dataclass

from broker.node.state.pause import ConsumptionPause
from broker.node.state.write_lease import WriteLease
from broker.ports.master.live_settings import LiveSettings


@dataclass(frozen=True, slots=True)
class Leased:
    """One per node. `settings`: those of this process, changed by what leases carry."""

    write_lease: WriteLease
    pause: ConsumptionPause
    settings: LiveSettings
