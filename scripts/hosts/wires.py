"""What becomes of a packet between two hosts: it arrives at once, later, or never. Pure."""

import json
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

Pair = tuple[str, str]
"""The address of the sender and that of the receiver."""


@dataclass(frozen=True, slots=True)
class Wires:
    """`cut`: pairs of whose packets none arrives, one way. Of a host, by its address: by how many
    seconds all that it sends or receives is late, and which share of that is lost.
    """

    cut: Collection[Pair] = ()
    delay_s: Mapping[str, float] = field(default_factory=dict)
    loss: Mapping[str, float] = field(default_factory=dict)

    def late_s(self, sender: str, receiver: str, chance: random.Random) -> float | None:
        """The seconds until a packet arrives; None: it is lost."""
        if (sender, receiver) in self.cut:
            return None
        for host in (sender, receiver):
            share = self.loss.get(host, 0.0)
            if share and chance.random() < share:
                return None
        return self.delay_s.get(sender, 0.0) + self.delay_s.get(receiver, 0.0)

    def encode(self) -> str:
        """As one line."""
        return json.dumps([sorted(self.cut), dict(self.delay_s), dict(self.loss)])

    @classmethod
    def decode(cls, line: str) -> Self:
        """What `encode` made."""
        cut, delay_s, loss = json.loads(line)
        return cls({(sender, receiver) for sender, receiver in cut}, delay_s, loss)
