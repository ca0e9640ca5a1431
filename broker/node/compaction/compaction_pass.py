"""One pass of compaction over some vchannels of a pchannel, in steps.

1. Read the keys of what is not clean, and find the newest message of each.
2. If tombstones may go: read once more whether anything is left that they delete.
3. Write into the log up to which tick messages may be missing, durably.
4. Write each segment anew that has superseded messages.
5. Write into the log that all of it is clean.

Why a pass may end anywhere, by a crash too: a message goes only while a newer one of its key lies
in the log, durable and below the checkpoint, and that one goes only for a still newer one. A
tombstone goes only when step 2 has found nothing in the log that it deletes, and no step adds any.
So each segment that was rewritten is right by itself, and the next pass finds what this one left.

Each step deals with one segment, on another thread, in portions with pauses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from broker.core.compaction.compaction_due import after_pass
from broker.core.compaction.compaction_table import encode_compacted
from broker.core.compaction.key_scan import KeyScan, Target
from broker.core.compaction.segment_judge import Ends, Judgement, SegmentJudge
from broker.model.failure import Refusal, Refused
from broker.model.ids import MessageId, TimeTick
from broker.model.message import COMPACTION, NewMessage
from broker.model.record import Record
from broker.model.retention.compaction import Compacted, Compaction
from broker.model.retention.policy import SealedSegment
from broker.node.append.intake import append
from broker.node.compaction.held_messages import held_messages
from broker.node.directory_messages import Located
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.node.truncation import behind_tick

WRITE_S: Final = 30.0


class Phase(Enum):
    """What a pass does next."""

    SCAN = auto()
    LOOK_AGAIN = auto()
    ANNOUNCE = auto()
    REWRITE = auto()
    FINISH = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class PassPlan:
    """What a pass covers: `targets` up to the tick `upto`, in the `segments` of the log.

    `first_id`: where the log began. `gone`: tombstones up to the horizon may go, by vchannel.
    `policies`: of each target the one it is planned for.
    """

    targets: Mapping[str, Target]
    upto: TimeTick
    segments: Sequence[SealedSegment]
    first_id: MessageId
    gone: frozenset[str] = frozenset()
    policies: Mapping[str, Compaction] = field(default_factory=dict)

    @property
    def segment_ids(self) -> list[MessageId]:
        """Where each segment begins."""
        return [self.first_id, *[it.next_id for it in self.segments[:-1]]]


class CompactionPass:
    """`given_back`: bytes so far. `rewritten`: segments."""

    def __init__(
        self, channel: OpenChannel, node: NodeRuntime, plan: PassPlan, located: Located
    ) -> None:
        self.channel, self.plan = channel, plan
        self.phase = Phase.SCAN
        self.given_back = self.rewritten = 0
        self._node, self._located = node, located
        size, plain_key = node.limits.compaction_map_bytes, node.headers.plain_key
        self._keys = KeyScan(plan.targets, plan.upto, size, plain_key)
        self._begun = False
        self._ahead: list[SealedSegment] = []
        self._behind = list(zip(plan.segments, plan.segment_ids, strict=True))
        self._ends: Ends = {}
        self._tombstones: dict[str, int] = {}

    @property
    def upto(self) -> TimeTick:
        """Up to which tick it covers; less than planned when the keys did not fit into memory."""
        return self._keys.upto

    async def step(self, now_ms: int) -> None:
        """Do the next part. Raises WalError, LogClosed and Refused; it can be called again then."""
        match self.phase:
            case Phase.SCAN:
                await self._scan()
            case Phase.LOOK_AGAIN:
                await self._look_again()
            case Phase.ANNOUNCE:
                await self._announce()
            case Phase.REWRITE:
                await self._rewrite()
            case Phase.FINISH:
                await self._finish(now_ms)
            case Phase.DONE:
                return

    async def _scan(self) -> None:
        if not self._begun:
            start = await self._start()
            self._ahead = [it for it in self.plan.segments if it.next_id > start]
            self._begun = True
        if not await self._shown(self._keys.take):
            self.phase = Phase.LOOK_AGAIN if self._keys.tombstones else Phase.ANNOUNCE
            self._ahead = list(self.plan.segments)

    async def _start(self) -> MessageId:
        """Where to begin: with tombstones at the begin of the log, else at what is not clean."""
        if self.plan.gone:
            return self.plan.first_id
        clean = min([it.clean for it in self.plan.targets.values()])
        return await behind_tick(self.channel.log, clean)

    async def _look_again(self) -> None:
        if not await self._shown(_always(self._keys.keep_shadowing)):
            self.phase = Phase.ANNOUNCE

    async def _shown(self, use: Callable[[Record], bool]) -> bool:
        """Show the records of the next segment; False if there is none, or it wants no more."""
        if not self._ahead or not await self.channel.log.look(self._ahead[0], use):
            return False
        del self._ahead[0]
        return True

    async def _announce(self) -> None:
        for name in self.plan.targets:
            known = self.channel.compactions.of(name)
            # An earlier pass that failed may have written it: those that keep failing add nothing.
            # After a seal a record is needed anyhow, as nothing is rewritten without one behind it.
            if known.upto >= self.upto and self._has_active:
                continue
            await self._write(
                Compacted(
                    name,
                    max(known.upto, self.upto),
                    known.clean,
                    known.horizon,
                    known.horizon_ms,
                    known.tombstones,
                )
            )
        self.phase = Phase.REWRITE

    @property
    def _has_active(self) -> bool:
        """Whether anything was appended since the last seal."""
        sealed, next_id = self.channel.log.segments(), self.channel.log.bounds().next_id
        return not sealed or sealed[-1].next_id < next_id

    async def _rewrite(self) -> None:
        """Write the newest segment anew that was not dealt with, if anything goes from it."""
        if not self._behind:
            self.phase = Phase.FINISH
            return
        segment, base_id = self._behind[-1]
        log, headers = self.channel.log, self._node.headers
        held = held_messages(self.channel, headers).holds
        by = Judgement(held, headers.unpacked, self._is_outdated)
        judge = SegmentJudge(self._keys, base_id, self._ends, headers.plain_key, by)
        await log.look(segment, _always(judge.look))
        if judge.gone:
            async with self.channel.rewrites:
                given = await log.thin(segment, judge.left)
            self.given_back += given
            self.rewritten += given > 0
        for name, count in judge.tombstones.items():
            self._tombstones[name] = self._tombstones.get(name, 0) + count
        self._behind.pop()

    def _is_outdated(self, record: Record) -> bool:
        return record.last_tick < self.channel.compactions.of(record.vchannel).tick

    async def _finish(self, now_ms: int) -> None:
        for name in self.plan.targets:
            before = self.channel.compactions.of(name)
            left, gone = self._tombstones.get(name, 0), name in self.plan.gone
            await self._write(after_pass(before, self.upto, left, now_ms=now_ms, gone=gone))
        self.phase = Phase.DONE

    async def _write(self, state: Compacted) -> None:
        body = encode_compacted(state)
        message = NewMessage(state.vchannel, COMPACTION, body, len(body))
        (outcome,) = await append(self._located, (message,), deadline_s=WRITE_S)
        if isinstance(outcome, Refusal):
            raise Refused(outcome.code, outcome.cause)
        self.channel.compactions.apply(
            Compacted(
                state.vchannel,
                state.upto,
                state.clean,
                state.horizon,
                state.horizon_ms,
                state.tombstones,
                outcome.tick,
            )
        )


def _always(use: Callable[[Record], None]) -> Callable[[Record], bool]:
    def show(record: Record) -> bool:
        use(record)
        return True

    return show
