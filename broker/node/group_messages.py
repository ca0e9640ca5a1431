"""What the edge asks of the GroupKeeper of a pchannel, and of a Group."""

from dataclasses import dataclass

from actors import Ref, Request
from broker.core.log.delivery import DeliveredItem
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import (
    DeliveryLimit,
    GroupKey,
    GroupView,
    Ownership,
    TickSpan,
)
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import MessageId, TimeTick, TxnId
from broker.value import value

# ---- of a Group ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupJoined:
    """A member's number, how long its leases last, and the mode of the group."""

    member: int
    lease_ms: int
    mode: GroupMode = GroupMode.SHARED


@dataclass(frozen=True, slots=True)
class JoinGroup(Request[GroupJoined | Refusal]):
    """Become a member; it is one until LeaveGroup, or until this Group ends.

    `identity`: the same on all vchannels of the group, and no other member's.
    """

    name: str
    identity: str = ""


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """The member is gone: others get at once what it has."""

    member: int


@value
class LeasedMessages:
    """Messages on lease: all of `span` that are not acknowledged; delivered `times` times by now.

    `lease` 0: nothing for now; take again. `alone`: it is their last delivery; send BeginLease
    before they are processed, and process nothing beside them.
    """

    lease: int
    span: TickSpan
    times: int
    items: tuple[DeliveredItem, ...]
    alone: bool = False


@value
class TakeMessages(Request[LeasedMessages | Refusal]):
    """About `bytes_max` bytes of messages for a member, at least one message.

    Answered after some 20 s without any: use a deadline of at least 45 s. One at a time.
    """

    member: int
    bytes_max: int


@value
class AckMessages(Request[Refusal | None]):
    """Acknowledge spans of a lease, or all that is left for none; None once that is durable.

    `txn`: in this open transaction of the vchannel, which holds the messages until it ends: its
    commit acknowledges them, otherwise they come again. 0: now.

    Refusals: INVALID_REQUEST_SEQ for a lease that is over, INVALID_ARGUMENT for spans that are not
    on it, UNKNOWN when it may or may not be stored, else as for appends and bodies of transactions.
    """

    member: int
    lease: int
    spans: tuple[TickSpan, ...]
    txn: TxnId = TxnId(0)


@value
class NackMessages(Request[Refusal | None]):
    """Deliver spans of a lease again after `delay_ms`, or all that is left for none."""

    member: int
    lease: int
    spans: tuple[TickSpan, ...]
    delay_ms: int


@value
class RejectMessages(Request[Refusal | None]):
    """Give spans of a lease to the dead letters, or all that is left; None once that is durable.

    They are delivered no more; their copies follow. Refusals: as for AckMessages; INVALID_ARGUMENT
    for a group without dead letters.
    """

    member: int
    lease: int
    spans: tuple[TickSpan, ...]
    cause: str


@value
class BeginLease(Request[Refusal | None]):
    """The member begins to process a lease that is `alone`; None once that is durable.

    Only from then on it counts as delivered.
    """

    member: int
    lease: int


@value
class ExtendLease(Request[Refusal | None]):
    """Begin the lease anew."""

    member: int
    lease: int


@dataclass(frozen=True, slots=True)
class WatchOwnership(Request[Ownership | Refusal]):
    """Who is to own the vchannel, once that is not as it was after `changes`.

    Of an ordered group. Answered after some 20 s in any case; one of each member at a time.
    """

    member: int
    changes: int


@dataclass(frozen=True, slots=True)
class GiveVChannel:
    """Have the vchannel of an ordered group go to the member of this identity.

    It counts of the one that owns it, or of any when nobody does.
    """

    member: int
    identity: str


@dataclass(frozen=True, slots=True)
class StopGroup(Request[Refusal | None]):
    """End, unless there are members. For the GroupKeeper, before it drops or seeks the group."""


@dataclass(frozen=True, slots=True)
class MessagesCame:
    """The tail has new records of the vchannel, all of them at `from_id` or above."""

    from_id: MessageId


LeaseMessage = AckMessages | NackMessages | RejectMessages | BeginLease | ExtendLease
"""What a member says of a lease that it has."""

OwnerMessage = WatchOwnership | GiveVChannel
MemberMessage = JoinGroup | LeaveGroup | TakeMessages | LeaseMessage | OwnerMessage | StopGroup
GroupMessage = MemberMessage | MessagesCame

# ---- of the GroupKeeper -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateGroup(Request[GroupView | Refusal]):
    """Create a group. `floor` None: it gets what is appended after it.

    `mode` None: shared, or that of the group that exists. INVALID_ARGUMENT for a bad name, lease or
    limit, and for a group of another mode; IGNORED_OPERATION for one that exists, unless
    `exist_ok`.
    """

    key: GroupKey
    lease_ms: int
    floor: TimeTick | None
    exist_ok: bool
    limit: DeliveryLimit | None = None
    mode: GroupMode | None = None


@dataclass(frozen=True, slots=True)
class AlterGroup(Request[GroupView | Refusal]):
    """Give a group other leases (None: as they are) and another limit.

    RESOURCE_ACQUIRED with members.
    """

    key: GroupKey
    lease_ms: int | None
    limit: DeliveryLimit | None


@dataclass(frozen=True, slots=True)
class SeekGroup(Request[GroupView | Refusal]):
    """Set the floor, and forget what is acknowledged above; RESOURCE_ACQUIRED with members."""

    key: GroupKey
    floor: TimeTick | None


@dataclass(frozen=True, slots=True)
class DropGroup(Request[Refusal | None]):
    """Drop a group; RESOURCE_ACQUIRED while it has members."""

    key: GroupKey


@dataclass(frozen=True, slots=True)
class ListGroups(Request[tuple[GroupView, ...]]):
    """The groups of these vchannels (none: of all), by name and vchannel; only the first `most`.

    `name`: only that one of each; "" for all. `after`: only those behind it in this order.
    `brief`: only what is stored of each, which costs little where they have many members.
    """

    vchannels: tuple[str, ...]
    name: str
    most: int = 1000
    after: GroupKey | None = None
    brief: bool = False


@dataclass(frozen=True, slots=True)
class OpenGroup(Request[Ref[GroupMessage] | Refusal]):
    """The Group, which is started if it does not run. UNRECOVERABLE: there is none."""

    key: GroupKey


@dataclass(frozen=True, slots=True)
class OpenSchedule(Request[Refusal | None]):
    """Have the vchannel's delayed messages released from now on; None once that is durable."""

    vchannel: str


@dataclass(frozen=True, slots=True)
class StartSchedules:
    """Start the actors of all schedules that the pchannel has, and those that copy dead letters."""


@dataclass(frozen=True, slots=True)
class ForgetDropped:
    """Drop the groups of collections that were dropped."""


KeeperMessage = (
    CreateGroup
    | AlterGroup
    | SeekGroup
    | DropGroup
    | ListGroups
    | OpenGroup
    | OpenSchedule
    | StartSchedules
    | ForgetDropped
)
