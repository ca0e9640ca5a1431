"""A pack of bodies that are encoded already: the fastest way to send or forward many messages."""

from collections.abc import Sequence

from broker.msgstream.messages.encoded_msg import EncodedMsg
from broker.msgstream.messages.ts_msg import MsgPack, TsMsg
from broker.msgstream.stream_errors import BadMessage

_HEADER = b"\x0a"


class EncodedPack(MsgPack):
    """Bodies with one hash key each, which go whole; no object is made for a message.

    BadMessage unless every body begins with a header, and there are as many keys.
    """

    __slots__ = ("bodies", "hash_keys")

    def __init__(self, bodies: Sequence[bytes], hash_keys: Sequence[int]) -> None:
        super().__init__()
        if len(bodies) != len(hash_keys):
            raise BadMessage(f"{len(bodies)} bodies have {len(hash_keys)} hash keys; give one each")
        for body in bodies:
            if body[:1] != _HEADER:
                raise BadMessage(f"a body that begins with {body[:8]!r} has no header")
        self._msgs = None
        self.bodies = bodies
        self.hash_keys = hash_keys

    @property
    def msgs(self) -> Sequence[TsMsg]:
        """Its messages, made at the first call: for a repack function of the program."""
        if self._msgs is None:
            pairs = zip(self.bodies, self.hash_keys, strict=True)
            self._msgs = [EncodedMsg(body, hash_keys=[key]) for body, key in pairs]
        return self._msgs

    def spread(self, channels: int) -> dict[int, Sequence[bytes]]:
        """The bodies for each bucket, in their order."""
        if channels == 1:
            return {0: self.bodies} if self.bodies else {}
        found: dict[int, list[bytes]] = {}
        for body, key in zip(self.bodies, self.hash_keys, strict=True):
            found.setdefault(key % channels, []).append(body)
        return {**found}
