"""The node's part of the actor tree: its pchannels, and the Directory that knows them.

    node (one_for_one)
    ├─ channels (one_for_one)      channel[name], added by the Directory when it is first assigned
    └─ directory

It only describes them. Why the Directory comes last and alone: its death closes no pchannel.
Next: broker/node/directory.py
"""

from actors import ChildSpec, MailboxSpec, Overflow, Strategy, SupervisorSpec
from broker.node.channel import RESTARTS_MAX
from broker.node.directory import CHANNELS, Directory
from broker.node.parts import NodeParts


def node_spec(parts: NodeParts) -> SupervisorSpec:
    """The subtree `node`; the Directory is found at `<parent>/node/directory`."""
    return SupervisorSpec(
        name="node",
        strategy=Strategy.ONE_FOR_ONE,
        children=(
            SupervisorSpec(name=CHANNELS, restarts_max=RESTARTS_MAX),
            ChildSpec(
                name="directory",
                build=lambda: Directory(parts),
                mailbox=MailboxSpec(bound=4096, overflow=Overflow.BLOCK, batch_max=64),
            ),
        ),
        restarts_max=20,
    )
