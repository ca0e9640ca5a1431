"""The subtree of the time tick producer.

time_ticks (one_for_one)
├─ proxies        the soft barrier of the proxies
├─ proxies_sender
├─ write_nodes    the hard barrier of the write nodes
└─ write_nodes_sender
"""

from collections.abc import Iterator, Sequence

from actors import ONE_FOR_ONE, ChildSpec, MailboxSpec, Overflow, SupervisorSpec
from broker.master.time_ticks.tick_collector import TickCollector
from broker.master.time_ticks.tick_sender import TickSender
from broker.model.ids import PChannelName
from broker.model.master.time_ticks import TickOrigin
from broker.ports.meta import MetaStore
from broker.ports.tick_appends import TickAppends

TIME_TICKS = "time_ticks"
RESTARTS_MAX = 20


def collector_name(origin: TickOrigin) -> str:
    """The name of the collector of this origin."""
    return origin.name.lower()


def time_ticks_tree(
    store: MetaStore, appends: TickAppends, pchannels: Sequence[PChannelName], parent_path: str
) -> SupervisorSpec:
    """The subtree `time_ticks`, for the supervisor at `parent_path`."""
    path = f"{parent_path}/{TIME_TICKS}"

    def leg(origin: TickOrigin) -> Iterator[ChildSpec]:
        collector = collector_name(origin)
        sender = f"{collector}_sender"
        yield ChildSpec(
            collector,
            lambda: TickCollector(origin, store, pchannels, f"{path}/{sender}"),
            MailboxSpec(bound=4096, batch_max=256),
            patient=True,
        )
        # Wake-ups may be lost: one round serves them all, and a timer makes up for the last.
        mailbox = MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8)
        yield ChildSpec(
            sender,
            lambda: TickSender(origin, store, appends, f"{path}/{collector}"),
            mailbox,
            patient=True,
        )

    children = [child for origin in TickOrigin for child in leg(origin)]
    return SupervisorSpec(
        name=TIME_TICKS, strategy=ONE_FOR_ONE, children=tuple(children), restarts_max=RESTARTS_MAX
    )
