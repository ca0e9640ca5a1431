"""The answer to a change, kept with its broadcast, so that a repeat gets the same one."""

import json
from dataclasses import dataclass

from broker.model.ids import VChannelName
from broker.unreadable import UNREADABLE


@dataclass(frozen=True, slots=True)
class DdlAnswer:
    """`id`: of what was created, 0 for a drop. The rest: of a collection."""

    id: int = 0
    partition: int = 0
    vchannels: tuple[VChannelName, ...] = ()


def write_answer(answer: DdlAnswer) -> str:
    """The text beside a broadcast."""
    fields = {"id": answer.id, "partition": answer.partition, "vchannels": answer.vchannels}
    return json.dumps({key: value for key, value in fields.items() if value})


def read_answer(text: str) -> DdlAnswer:
    """The answer in the text; an empty one has none. Raises ValueError when it is damaged."""
    try:
        fields = json.loads(text) if text else {}
        vchannels = tuple(VChannelName(it) for it in fields.get("vchannels", ()))
        return DdlAnswer(int(fields.get("id", 0)), int(fields.get("partition", 0)), vchannels)
    except UNREADABLE as error:
        raise ValueError(f"the answer beside a broadcast is damaged: {error!r}") from error
