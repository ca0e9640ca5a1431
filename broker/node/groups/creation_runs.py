"""Which requests to a GroupKeeper may be carried out at once: creations of different groups."""

from collections.abc import Iterable, Iterator

from actors import Envelope
from broker.model.groups.consumer_group import GroupKey
from broker.node.group_messages import CreateGroup, KeeperMessage

Run = list[Envelope[KeeperMessage]]


def creation_runs(batch: Iterable[Envelope[KeeperMessage]]) -> Iterator[Run]:
    """The requests in their order, in parts; a part has one, or creations of different groups."""
    run: Run = []
    keys: set[GroupKey] = set()
    for envelope in batch:
        request = envelope.message
        key = request.key if isinstance(request, CreateGroup) else None
        if run and (key is None or key in keys):
            yield run
            run, keys = [], set()
        run.append(envelope)
        if key is None:
            yield run
            run = []
        else:
            keys.add(key)
    if run:
        yield run
