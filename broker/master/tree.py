"""The subtree of the master, built from what it needs."""

from dataclasses import dataclass

from actors import ONE_FOR_ONE, ChildSpec, MailboxSpec, SupervisorSpec
from broker.master.ids.id_allocator import IdAllocator
from broker.ports.meta import MetaStore

MASTER = "master"
IDS = "ids"


@dataclass(frozen=True, slots=True)
class MasterParts:
    """Dependencies. `store`: written under the leader's term."""

    store: MetaStore


def master_tree(parts: MasterParts) -> SupervisorSpec:
    """The subtree `master`. Its actors are patient: they wait for a store that is away."""
    return SupervisorSpec(
        name=MASTER,
        strategy=ONE_FOR_ONE,
        children=(
            ChildSpec(
                IDS,
                lambda: IdAllocator(parts.store),
                MailboxSpec(bound=4096, batch_max=256),
                patient=True,
            ),
        ),
    )
