"""Follows the coordinator's assignment table in the background, and notifies waiters of changes.

Keeps one AssignmentDiscover stream open for as long as the client lives.
"""

import random
from collections import deque
from collections.abc import Callable

import anyio

from broker.client.errors import BadTarget, DeadlineExceeded, ServerRefusal, TidemarkError
from broker.client.net.assignment_table import AssignmentTable, Location
from broker.client.net.backoff import FOLLOWED_MS_MAX, Backoff
from broker.client.net.connection import Connection, Conversation
from broker.client.net.control_messages import DISCOVER, read_assignment, report_error
from broker.client.net.deadlines import Deadlines
from broker.client.net.until_first import until_first
from broker.client.net.wait_report import Wait
from broker.client.net.waits import Waits, answer_of
from broker.model.channel import Assignment, PChannel
from broker.model.ids import PChannelName

REPORTS_MAX = 1024
DOUBT_S = 2.0
"""Somebody waits for a newer table for so long: the coordinator may be paused, and be no leader."""
DOUBT_S_MAX = 8.0
"""The longest time between two streams that end so: mostly there is no newer table yet."""
WRITE_S = 5.0
RETRY_OTHER_S = 0.2
"""Before another coordinator is asked: one of them leads, or soon will."""
READ_ONLY_S = 0.5
"""A writer learns after so long that the channel is read-only; it may call again to wait on."""


class Assignments:
    """Finds where a pchannel is served, and waits for changes of that."""

    def __init__(
        self, connection: Connection, waits: Waits, deadlines: Deadlines, spread: random.Random
    ) -> None:
        self._connection = connection
        self._waits = waits
        self._wait: Wait | None = None
        self._current = False
        self._deadlines = deadlines
        self._spread = spread
        self._table = AssignmentTable()
        self._backoff = Backoff(max_ms=FOLLOWED_MS_MAX)
        self._changed = anyio.Event()
        # Bounded while the coordinator is away; a report is a hint, so the oldest may be lost.
        self._reports: deque[bytes] = deque(maxlen=REPORTS_MAX)
        self._report_waits = anyio.Event()
        self._last_error: TidemarkError | None = None
        self._newer_wanted = anyio.Event()
        self._doubt_s = DOUBT_S

    async def follow(self) -> None:
        """Keep the table up to date until cancelled."""
        while True:
            self._begin_wait()
            told_s = 0.0
            try:
                async with self._connection.converse(DISCOVER, deadline_s=self._open_s()) as stream:
                    await self._converse(stream)
            except TidemarkError as error:
                self._current = False
                self._begin_wait(str(error))
                self._backoff, told_s = self._backoff.failed(), error.retry_s
                if self._connection.tries_on(error):
                    await anyio.sleep(RETRY_OTHER_S * self._spread.random())
                    continue
                self._last_error = error
                # Wakes `ready`, which raises the error of the first attempt.
                self._announce()
            await anyio.sleep(max(told_s, self._backoff.delay_s(self._spread.random())))

    async def ready(self, deadline_s: float) -> None:
        """Return when the first table has arrived; raises the error of a failed first attempt."""
        with anyio.move_on_after(deadline_s):
            while not self._table.known:
                # One with a time to wait is followed by another attempt.
                if self._last_error is not None and not self._last_error.retry_s:
                    raise self._last_error
                await self._changed.wait()
            return
        cause = f"{self._connection.address} did not answer within {deadline_s} s"
        raise DeadlineExceeded(f"{cause}{self._last_cause()}")

    async def locate(
        self, name: PChannelName, *, deadline_s: float, writes: bool = False
    ) -> Location:
        """Where `name` is served; waits up to `deadline_s` seconds while nobody serves it.

        `writes`: a node that serves it read-only does not count. Raises BadTarget for a name that
        is no pchannel of this cluster, DeadlineExceeded when nobody serves it in time.
        """
        self._check(name)
        found: Location | None = None
        with anyio.move_on_after(deadline_s) as waiting:
            while True:
                found = self._table.find(name)
                if found is not None:
                    if not (writes and found.is_read_only):
                        return found
                    # Appends retry often: report "read-only" sooner than the deadline.
                    latest_s = anyio.current_time() + READ_ONLY_S
                    waiting.deadline = min(waiting.deadline, latest_s)
                self._newer_wanted.set()
                # Says again after a while that it waits: the next stream does not know that.
                with anyio.move_on_after(DOUBT_S):
                    await self._changed.wait()
        if found is not None:
            cause = f"pchannel {name!r} is read-only; enable writes: `tidemark streaming enable`"
            raise DeadlineExceeded(cause)
        cause = f"no node served pchannel {name!r} for {deadline_s} s"
        raise DeadlineExceeded(f"{cause}{self._last_cause()}")

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of all nodes that serve anything now, sorted."""
        return self._table.addresses

    def names(self, address: str) -> bool:
        """Whether the coordinator, which is connected, says that a node serves at this address."""
        return self._current and address in self._table.addresses

    def report(self, channel: PChannel, error: ServerRefusal) -> None:
        """Report to the coordinator, once for each term, that its assignment is wrong."""
        if self._table.should_report(channel):
            self._reports.append(report_error(channel, error.code, error.cause))
            self._report_waits.set()

    async def wait_change(self, channel: PChannel, delay_s: float) -> None:
        """Return when the table has a newer term of `channel`, or after `delay_s` seconds."""
        self._newer_wanted.set()
        with anyio.move_on_after(delay_s):
            await self.until_newer(channel)

    async def until_newer(self, channel: PChannel) -> None:
        """Return when the table has a newer term of `channel`."""
        while True:
            found = self._table.find(channel.name)
            if found is not None and found.channel.term > channel.term:
                return
            await self._changed.wait()

    async def until_moved(self, channel: PChannel, awaited: Callable[[], object]) -> None:
        """As `until_newer`, for who waits for answers of the node that serves `channel`.

        `awaited`: None while no answer is waited for, else what stays the same until one comes. A
        node that says nothing may be paused together with the coordinator.
        """
        before: object = None
        while True:
            with anyio.move_on_after(DOUBT_S / 2):
                await self.until_newer(channel)
                return
            # Seen twice: what is answered soon is no reason to doubt anybody.
            now = awaited()
            if now is not None and now == before:
                self._newer_wanted.set()
            before = now

    def _open_s(self) -> float:
        """How long the stream may take to bring a table; `connect` waits for the first one."""
        given = self._deadlines
        return given.open_s if self._table.known else max(given.open_s, given.connect_s)

    def _begin_wait(self, cause: str = "") -> None:
        if self._wait is None:
            self._wait = self._waits.begin(answer_of(self._connection.address))
        self._wait.cause = cause or self._wait.cause

    def _last_cause(self) -> str:
        """The last failure, for the end of a sentence; "" while there is none."""
        cause = str(self._last_error or "")
        # A coordinator that does not lead is no error of the client, which asks the others: but
        # when all of them say so, that is what its caller has to know.
        if not cause and self._wait is not None:
            cause = self._wait.cause
        return f"; last error: {cause}" if cause else ""

    def _check(self, name: PChannelName) -> None:
        # Not by the table: a pchannel that is being moved is missing there too.
        prefix = self._table.control_host.rpartition("_")[0]
        if prefix and name.rpartition("_")[0] != prefix:
            raise BadTarget(f"{name!r} is no channel of this cluster; its pchannels are {prefix}_N")

    async def _converse(self, stream: Conversation) -> None:
        # Before the first report: those lost with the last stream may be made again.
        self._table.stream_opened()
        self._newer_wanted = anyio.Event()
        await until_first(
            lambda: self._read_tables(stream),
            lambda: self._send_reports(stream),
            self._until_doubted,
        )

    async def _until_doubted(self) -> None:
        """Return when a newer table was waited for in vain, and another server may have one.

        The next stream is opened to the same server: if it is silent there as well, it is left.
        """
        while True:
            wanted = self._newer_wanted
            await wanted.wait()
            await anyio.sleep(self._doubt_s)
            if wanted is not self._newer_wanted:
                continue  # a newer table has come meanwhile
            if self._connection.others_may_answer():
                self._doubt_s = min(2 * self._doubt_s, DOUBT_S_MAX)
                return
            self._newer_wanted = anyio.Event()

    async def _read_tables(self, stream: Conversation) -> None:
        # The first table must arrive soon; later silence only means that nothing changed.
        for message in await stream.read(self._connection.first_answer_s(self._open_s())):
            self._take(read_assignment(message))
        # Only a table counts as success: a server that accepts streams may still have none.
        self._backoff = self._backoff.succeeded()
        self._current = True
        self._waits.end(self._wait, succeeded=True)
        self._wait = None
        while True:
            for message in await stream.read(None):
                self._take(read_assignment(message))

    async def _send_reports(self, stream: Conversation) -> None:
        while True:
            await self._report_waits.wait()
            # Replaced first, so that a report made during a write below is not missed.
            self._report_waits = anyio.Event()
            while self._reports:
                await stream.write(self._reports.popleft(), WRITE_S)

    def _take(self, table: Assignment | None) -> None:
        if table is not None and self._table.accept(table):
            self._last_error = None
            if self._newer_wanted.is_set():  # else `_until_doubted` waits for this one
                self._newer_wanted = anyio.Event()
            self._doubt_s = DOUBT_S
            self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
