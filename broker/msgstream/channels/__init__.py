"""The channel service: fresh channels for an owner, until they are destroyed."""

from broker.msgstream.channels.channel_service import ChannelService
from broker.msgstream.channels.owned_channels import (
    ChannelDescription,
    CreateChannelRequest,
    CreateChannelResponse,
    DescribeChannelRequest,
    DescribeChannelResponse,
    DestoryChannelRequest,
    DestroyChannelRequest,
    NoSuchChannel,
    OwnerDescription,
)

__all__ = [
    "ChannelDescription",
    "ChannelService",
    "CreateChannelRequest",
    "CreateChannelResponse",
    "DescribeChannelRequest",
    "DescribeChannelResponse",
    "DestoryChannelRequest",
    "DestroyChannelRequest",
    "NoSuchChannel",
    "OwnerDescription",
]
