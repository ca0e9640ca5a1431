"""The identifiers of the domain, as distinct types over int and str."""

from typing import NewType

TimeTick = NewType("TimeTick", int)
"""Hybrid time, unsigned 64 bit: Unix milliseconds << 18, plus a logical counter."""

Term = NewType("Term", int)
"""The number of an owner's incarnation, from 1; a larger term fences every smaller one."""

MessageId = NewType("MessageId", int)
"""Position of one message in its pchannel, from 1, +1 per message. On the wire: base-36 text."""

PChannelName = NewType("PChannelName", str)
"""A durable log with one writer at a time, such as `by-dev-rootcoord-dml_0`."""

VChannelName = NewType("VChannelName", str)
"""A stream inside one pchannel, such as `by-dev-rootcoord-dml_0_42v0`; empty: all of it."""

TxnId = NewType("TxnId", int)
"""A transaction, identified by the tick of its begin; unique on a pchannel."""

BroadcastId = NewType("BroadcastId", int)
"""One broadcast, from 1; never reused, even after crashes of the coordinator."""

CollectionId = NewType("CollectionId", int)
PartitionId = NewType("PartitionId", int)

SegmentId = NewType("SegmentId", int)
"""A segment of rows of one partition. The id is a tick that no message has, so it is unique."""

NodeId = NewType("NodeId", int)

FIRST_MESSAGE_ID = MessageId(1)
TICK_LOGICAL_BITS = 18
TICK_LOGICAL_MAX = (1 << TICK_LOGICAL_BITS) - 1
