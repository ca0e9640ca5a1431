"""The stored form of a switch of the log: one record for the cluster, one for each pchannel."""

from typing import Any, Final

from broker.coordinator.json_records import decode_fields, encode_fields
from broker.coordinator.records import ALTER_KEY
from broker.core.cluster.wal_alter import Alter, AlterStage, ChannelAlter
from broker.model.ids import MessageId, PChannelName

CHANNEL_PREFIX: Final = "wal/channel/"


def channel_key(name: PChannelName) -> str:
    """The key of a pchannel's record."""
    return CHANNEL_PREFIX + name


def encode_alter(alter: Alter) -> bytes:
    """The stored form of a switch."""
    return encode_fields(
        {
            "number": alter.number,
            "stage": alter.stage.name.lower(),
            "source": alter.source,
            "target": alter.target,
            "leaves_history": alter.leaves_history,
        }
    )


def decode_alter(value: bytes) -> Alter:
    """Parse it. Raises UnreadableRecord."""

    def parse(fields: dict[str, Any]) -> Alter:
        return Alter(
            int(fields["number"]),
            AlterStage[str(fields["stage"]).upper()],
            str(fields["source"]),
            str(fields["target"]),
            bool(fields["leaves_history"]),
        )

    return decode_fields(ALTER_KEY, value, parse)


def encode_channel(channel: ChannelAlter) -> bytes:
    """The stored form of a pchannel's part in a switch."""
    return encode_fields(
        {
            "number": channel.number,
            "begun": channel.begun,
            "close": channel.close,
            "switched": channel.switched,
            "ended": channel.ended,
            "copied_id": channel.copied_id,
            "checked_id": channel.checked_id,
            "source_id": channel.source_id,
            "trouble": channel.trouble,
        }
    )


def decode_channel(key: str, value: bytes) -> ChannelAlter:
    """Parse it. Raises UnreadableRecord."""

    def parse(fields: dict[str, Any]) -> ChannelAlter:
        return ChannelAlter(
            int(fields["number"]),
            begun=bool(fields["begun"]),
            close=bool(fields["close"]),
            switched=bool(fields["switched"]),
            ended=bool(fields["ended"]),
            copied_id=MessageId(int(fields["copied_id"])),
            checked_id=MessageId(int(fields["checked_id"])),
            source_id=MessageId(int(fields["source_id"])),
            trouble=str(fields["trouble"]),
        )

    return decode_fields(key, value, parse)
