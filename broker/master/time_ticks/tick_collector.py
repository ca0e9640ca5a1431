"""Collects the reports of one origin and says which tick is to be sent next.

The peers are recorded before they count. So after a restart, when every report is forgotten,
nothing passes before each of them has reported again, and no tick that an earlier incarnation may
have sent is sent again.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

import anyio

from actors import Actor, ActorError, Backoff, Context, Envelope
from broker.coordinator.records import decode_number
from broker.coordinator.retries import Retries
from broker.core.master.tick_leg import TickLeg, checked
from broker.core.time.barrier import NO_TICK, ReportVerdict
from broker.master.member_records import proxy_key
from broker.master.time_ticks.messages import (
    CloseTicks,
    CollectorMessage,
    DescribeTicks,
    NextTick,
    PeerReported,
    ReadTickSettings,
    ReportPeerTick,
    SendTicks,
    SetTicks,
    TickDelayed,
    TickSent,
    TickToSend,
)
from broker.master.time_ticks.tick_records import (
    decode_settings,
    encode_settings,
    floor_key,
    settings_key,
)
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName, TimeTick
from broker.model.master.time_ticks import TickOrigin, TickSettings, TimeTicksView
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaError, MetaStore, WriteUnconfirmed

READ_S = 5.0
"""How long one read may hold up reports when it is not known what is stored."""
READ_AGAIN = Backoff(first_s=0.5, max_s=5.0)


class TickCollector(Actor[CollectorMessage]):
    """The barrier of one origin. `sender_path`: who is woken when a tick has passed."""

    _context: Context[CollectorMessage]

    def __init__(
        self,
        origin: TickOrigin,
        store: MetaStore,
        pchannels: Sequence[PChannelName],
        sender_path: str,
    ) -> None:
        self._origin = origin
        self._store = store
        self._pchannels = frozenset(pchannels)
        self._sender_path = sender_path
        self._leg: TickLeg | None = None
        self._floor = NO_TICK
        self._error = ""
        self._unsure = ""
        """The failure of a write that may have changed the settings, until they are read again."""
        self._timer_set = False
        self._reads = Retries(READ_AGAIN, "time ticks not read again yet", origin=origin.name)

    async def started(self, context: Context[CollectorMessage]) -> None:
        self._context = context
        key = floor_key(self._origin)
        floor = await self._store.get(key)
        if floor is not None:
            self._floor = TimeTick(decode_number(key, floor.value))
        key = settings_key(self._origin)
        entry = await self._store.get(key)
        if entry is not None:
            self._leg = TickLeg(decode_settings(key, entry.value), self._floor)

    async def receive(self, batch: Sequence[Envelope[CollectorMessage]]) -> None:
        for envelope in batch:
            try:
                await self._handle(envelope)
            except Refused as refused:
                envelope.fail(refused)
            except WriteUnconfirmed as error:
                cause = (
                    f"{error}: describe the time ticks, and repeat the change if it is not there"
                )
                envelope.fail(Refused(StreamingCode.UNKNOWN, cause))
                self._unsure = str(error)
                await self._read()
            except MetaError as error:
                cause = f"the time ticks could not be stored: {error}; try again"
                envelope.fail(Refused(StreamingCode.INNER, cause))

    def statistics(self) -> Mapping[str, int | float | str]:
        view = self._view()
        found: dict[str, int | float | str] = {
            "peers": len(view.reports),
            "passed": view.passed,
            "sent": view.sent,
            "waiting": view.waiting,
            "waits_for": ", ".join(map(str, view.waits_for)),
        }
        return {**found, "error": view.error} if view.error else found

    async def _handle(self, envelope: Envelope[CollectorMessage]) -> None:
        match envelope.message:
            case ReportPeerTick(peer, tick):
                envelope.reply(self._report(peer, tick))
            case NextTick():
                envelope.reply(self._next())
            case TickSent(tick):
                self._error = ""
                if self._leg is not None:
                    self._leg.sent_everywhere(tick)
            case TickDelayed(cause):
                self._error = cause
            case SetTicks(settings):
                await self._set(settings)
                envelope.reply(self._view())
            case CloseTicks():
                await self._close()
                envelope.reply(self._view())
            case DescribeTicks():
                self._check_sure()
                envelope.reply(self._view())
            case ReadTickSettings():
                self._timer_set = False
                await self._read()
            case message:
                assert_never(message)

    def _report(self, peer: int, tick: TimeTick) -> PeerReported:
        leg = self._leg
        if leg is None:
            cause = f"no time ticks of {self._origin.name} are set; set them first"
            raise Refused(StreamingCode.CHANNEL_NOT_EXIST, cause)
        verdict = leg.report(peer, tick, self._context.clock.wall_ms())
        if leg.waiting:
            self._wake_sender()
        return PeerReported(leg.passed, late=verdict is ReportVerdict.LATE)

    def _next(self) -> TickToSend | None:
        leg = self._leg
        tick = None if leg is None else leg.next()
        return None if leg is None or tick is None else TickToSend(tick, leg.settings.channels)

    def _wake_sender(self) -> None:
        try:
            self._context.tree.find(self._sender_path).tell(SendTicks())
        except ActorError:
            pass  # it restarts, or is busy: its timer makes it look

    async def _set(self, settings: TickSettings) -> None:
        settings = checked(self._origin, settings, self._pchannels)
        key = settings_key(self._origin)

        async def attempt() -> None:
            # The write expects the records of the proxies, so that none of them is deleted between.
            expect = await self._known(settings.peers)
            entry = await self._store.get(key)
            expect[key] = entry.revision if entry else 0
            await self._store.write({key: encode_settings(settings)}, expect=expect)

        await retry_conflicts(key, attempt)
        self._take(settings)

    def _take(self, settings: TickSettings | None) -> None:
        """These are stored, and count from now on."""
        self._unsure = ""
        if settings is None:
            # The floor stays: timestamps that were promised to be complete stay so.
            self._floor = self._leg.passed if self._leg is not None else self._floor
            self._leg, self._error = None, ""
            return
        if self._leg is None:
            self._leg = TickLeg(settings, self._floor)
        else:
            self._leg = self._leg.changed_to(settings)
        if self._leg.waiting:
            self._wake_sender()

    async def _known(self, peers: Sequence[int]) -> dict[str, int]:
        """The records that the peers need, with their revisions. Raises Refused for a missing one.

        Write nodes have none: they are whatever processes the operator names.
        """
        if self._origin is not TickOrigin.PROXIES:
            return {}
        revisions: dict[str, int] = {}
        for peer in peers:
            entry = await self._store.get(proxy_key(peer))
            if entry is None:
                cause = f"proxy {peer} is not known to the master; add it first"
                raise Refused(StreamingCode.CHANNEL_NOT_EXIST, cause)
            revisions[proxy_key(peer)] = entry.revision
        return revisions

    async def _close(self) -> None:
        if self._leg is None and not self._unsure:
            return
        await self._store.write({}, deletes=[settings_key(self._origin)])
        self._take(None)

    def _check_sure(self) -> None:
        if self._unsure:
            cause = f"it is not known yet which time ticks are set, after a change: {self._unsure}"
            raise Refused(StreamingCode.INNER, f"{cause}; try again")

    async def _read(self) -> None:
        """Take over what a write without an answer has stored, now or when the store answers.

        Until then ticks pass as before it. In place: a restart would forget all reports.
        """
        if not self._unsure:
            return
        key = settings_key(self._origin)
        try:
            with anyio.fail_after(READ_S):
                entry = await self._store.get(key)
            settings = None if entry is None else decode_settings(key, entry.value)
        except (MetaError, TimeoutError) as error:
            self._reads.failed(str(error) or f"no answer within {READ_S:g} s")
            if not self._timer_set:
                self._timer_set = True
                self._context.after(self._reads.pause_s(self._context.random), ReadTickSettings())
            return
        self._reads.succeeded()
        self._take(settings)

    def _view(self) -> TimeTicksView:
        leg = self._leg
        if leg is None:
            return TimeTicksView(self._origin, None, passed=self._floor)
        return TimeTicksView(
            self._origin,
            leg.settings,
            leg.reports(),
            passed=leg.passed,
            sent=leg.sent,
            waits_for=leg.waits_for(),
            error=self._error,
            waiting=leg.waiting,
            skipped=leg.skipped,
        )
