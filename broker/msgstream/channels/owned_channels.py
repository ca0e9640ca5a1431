"""Channels and their owners, and the record that is stored for each."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from broker.client.errors import BadTarget, TidemarkError
from broker.model.master.live_config import ConfigEntry
from broker.unreadable import UNREADABLE

CHANNELS_MAX: Final = 1024
"""Of one request; a cluster holds about 9,000 channels, which is the limit of keys."""
TEXT_MAX: Final = 1024
PREFIX: Final = "app/msgstream-channels/"
_ROLE: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")


class NoSuchChannel(TidemarkError):
    """The channel service knows no channel of this name; nothing was changed."""


class ChannelState(StrEnum):
    """A channel is there only while it is READY; the others are the work of an unfinished call."""

    CREATING = "creating"
    READY = "ready"
    DESTROYING = "destroying"


@dataclass(frozen=True, slots=True)
class OwnerDescription:
    """Who channels belong to. `role`: small letters, digits and '-'; it begins their names."""

    role: str
    address: str = ""
    description_text: str = ""


@dataclass(frozen=True, slots=True)
class CreateChannelRequest:
    """So many channels for an owner."""

    owner_description: OwnerDescription
    num_channels: int


@dataclass(frozen=True, slots=True)
class CreateChannelResponse:
    """Their names, in the order of their creation."""

    channel_names: Sequence[str]


@dataclass(frozen=True, slots=True)
class DestroyChannelRequest:
    """The channels to destroy; one that is named twice counts once."""

    channel_names: Sequence[str]


DestoryChannelRequest = DestroyChannelRequest
"""As the interface of early Milvus spells it."""


@dataclass(frozen=True, slots=True)
class DescribeChannelRequest:
    """The channels to describe; one that is named twice counts once."""

    channel_names: Sequence[str]


@dataclass(frozen=True, slots=True)
class ChannelDescription:
    """A channel and its owner."""

    channel_name: str
    owner: OwnerDescription


@dataclass(frozen=True, slots=True)
class DescribeChannelResponse:
    """The descriptions in the order of the request."""

    descriptions: Sequence[ChannelDescription]


@dataclass(frozen=True, slots=True)
class ChannelRecord:
    """A stored channel. `since_ms`: when it came into its state, by the clock of the cluster."""

    name: str
    owner: OwnerDescription
    state: ChannelState
    since_ms: int
    revision: int = 0

    @property
    def key(self) -> str:
        """Where it is stored."""
        return PREFIX + self.name

    def stored(self) -> str:
        """The value to store."""
        owner = self.owner
        return json.dumps(
            {
                "role": owner.role,
                "address": owner.address,
                "text": owner.description_text,
                "state": self.state.value,
                "since_ms": self.since_ms,
            }
        )


def record_of(entry: ConfigEntry) -> ChannelRecord:
    """The record that is stored there. NoSuchChannel for a value that is none."""
    name = entry.key.removeprefix("/").removeprefix(PREFIX)
    try:
        it = json.loads(entry.value)
        owner = OwnerDescription(it["role"], it["address"], it["text"])
        return ChannelRecord(
            name, owner, ChannelState(it["state"]), int(it["since_ms"]), entry.revision
        )
    except UNREADABLE as error:
        raise NoSuchChannel(
            f"{entry.key} holds {entry.value[:60]!r}, which describes no channel ({error!r});"
            " delete the key with `tidemark config delete`"
        ) from None


def check_request(request: CreateChannelRequest) -> None:
    """Raise BadTarget, with the value, for what cannot be created."""
    owner, count = request.owner_description, request.num_channels
    if type(count) is not int or not 1 <= count <= CHANNELS_MAX:
        raise BadTarget(f"num_channels is {count!r}; it must be from 1 to {CHANNELS_MAX}")
    if not _ROLE.fullmatch(owner.role):
        raise BadTarget(
            f"the role {owner.role!r} cannot begin the names of channels: use up to 63 small"
            " letters, digits and '-', a letter first"
        )
    for what, text in (("address", owner.address), ("description", owner.description_text)):
        if len(text) > TEXT_MAX:
            raise BadTarget(f"the {what} has {len(text)} characters, at most {TEXT_MAX} are kept")


def distinct(names: Sequence[str]) -> list[str]:
    """The names, each once. BadTarget for none, too many, or what is no name."""
    found = list(dict.fromkeys([names] if isinstance(names, str) else names))
    if not found or len(found) > CHANNELS_MAX:
        raise BadTarget(f"the request has {len(found)} channels; name 1 to {CHANNELS_MAX}")
    for name in found:
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,90}", name):
            raise NoSuchChannel(f"the channel service gave no channel the name {name[:100]!r}")
    return found
