"""Calls to an etcd cluster: the next member when one does not answer, within one deadline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import structlog
from grpclib.config import Configuration
from grpclib.const import Cardinality

from broker.addresses import joined_address
from broker.etcd.etcd_errors import StaleToken, StoreWentBack, Unanswered, told
from broker.etcd.place import EtcdPlace
from broker.etcd.requests import LEASE_KEEP_ALIVE
from broker.ports.meta import MetaError
from broker.transport import Channel, MessageCodec, separate_wakeups, unary_call
from broker.transport.codec import RawDetailsCodec, WireMessage
from broker.transport.tls import ClientTls
from schemas.generated.etcdserverpb import (
    AuthenticateRequest,
    AuthenticateResponse,
    ResponseHeader,
)

CALL_S = 6.0
"""The longest time for a call, with all attempts: an election of etcd's takes one to three."""
ATTEMPTS_S = (1.5, 2.0)
"""The longest time for the first attempts; later ones have what is left."""
PAUSE_S, PAUSE_S_MAX = 0.02, 0.5
"""After all members refused at once; twice as long each time."""
SHORT_S = 0.1
"""With less than this left behind a login, a call is not made."""
APART_S = 30.0
"""After so long without an answer of its own cluster, beside some of another one, a store ends."""
LOGINS_MAX = 3
"""Of one call: a token may become stale again while other members learn of the new one."""

log = structlog.get_logger("tidemark")

A = TypeVar("A", bound=WireMessage)
R = TypeVar("R")


@dataclass(slots=True)
class Tries:
    """What happened to a call so far. `unsure`: an attempt may have been carried out, or may be."""

    unsure: bool = False
    failures: list[str] = field(default_factory=list)


class _OtherCluster(Unanswered):
    """The member belongs to another etcd cluster: what it did and says is of no account here."""


@dataclass(slots=True)
class _Apart:
    """The answers of another cluster, from `first_s` to `last_s`, with none of the own between.

    Two that are further apart than APART_S do not count together: perhaps nobody has asked.
    """

    first_s: float
    last_s: float
    fact: str
    """Of the last one."""


class Member:
    """One endpoint, connected at the first call, and again after its connection broke."""

    strange = False
    """Whether it was last found in another etcd cluster."""

    def __init__(self, host: str, port: int, tls: ClientTls | None) -> None:
        self.address = joined_address(host, port)
        self._silent = 0
        self._channel = Channel(
            host,
            port,
            codec=MessageCodec(),
            status_details_codec=RawDetailsCodec(),
            config=Configuration(),
        )
        self._channel.secure(tls)

    async def ask(
        self, path: str, request: WireMessage, answer: type[A], token: str, deadline_s: float
    ) -> A:
        """One attempt. Raises Unanswered, StaleToken or MetaError."""
        metadata = {"token": token} if token else {}
        try:
            found = await unary_call(
                self._channel, path, request, answer, metadata=metadata, deadline_s=deadline_s
            )
        except Exception as error:
            self._silent = self._silent + 1 if isinstance(error, TimeoutError) else 0
            if self._silent > 1:
                self.close()  # its connection may lead nowhere; the next attempt makes a new one
            raise self._told(error, deadline_s) from error
        self._silent = 0
        if found is None:
            raise Unanswered(f"etcd at {self.address} ended {path} without an answer")
        return found

    async def follow(
        self,
        path: str,
        request: WireMessage,
        answer: type[A],
        token: str,
        wanted: Callable[[A], R | None],
    ) -> R:
        """What `wanted` makes of the first message of a stream that it wants. Raises as `ask`."""
        metadata = {"token": token} if token else {}
        types = type(request), answer
        try:
            async with self._channel.request(
                path, Cardinality.STREAM_STREAM, *types, metadata=metadata
            ) as call:
                separate_wakeups(call)
                await call.send_message(request)
                while (message := await call.recv_message()) is not None:
                    if (found := wanted(message)) is not None:
                        await call.cancel()
                        return found
        except (MetaError, Unanswered):
            raise
        except Exception as error:
            raise self._told(error, 0.0) from error
        raise Unanswered(f"etcd at {self.address} ended {path}")

    def close(self) -> None:
        """Close the connection; its calls fail."""
        self._silent = 0
        self._channel.drop()

    def _told(self, error: Exception, deadline_s: float) -> Exception:
        result = told(error, self.address, deadline_s)
        if isinstance(result, Unanswered) and self._channel.refused:
            return Unanswered(f"etcd at {self.address}: {self._channel.refused}", sent=result.sent)
        return result


class Members:
    """The endpoints of one etcd cluster, of which one is asked until it fails.

    An endpoint of another cluster than that of the first answer is passed over, as one that does
    not answer. StoreWentBack, from this call and all later ones, when one call finds all endpoints
    so; when only such endpoints have answered for APART_S, even with an error, as etcd is also
    restored because members are lost; and when an answer, but for that of a keepalive, is of a
    revision below those seen before.
    """

    def __init__(
        self,
        place: EtcdPlace,
        tls: ClientTls | None,
        password: Callable[[], str],
        call_s: float = CALL_S,
    ) -> None:
        self.place = place
        self.call_s = call_s
        self._members = [Member(host, port, tls) for host, port in place.endpoints]
        self._password = password
        self._token = ""
        self._login = anyio.Lock()
        self._now = 0
        self._wrong = ""
        self._apart: _Apart | None = None
        self._closed = False
        self.cluster_id = 0
        """Of the first answer; 0 before it."""
        self.revision = 0
        """The highest one seen."""

    async def answered(self, path: str, request: WireMessage, answer: type[A]) -> A:
        """`call` for those to whom no answer is a failure like others. Raises MetaError."""
        try:
            return await self.call(path, request, answer)
        except Unanswered as failure:
            raise MetaError(str(failure)) from failure

    async def call(
        self,
        path: str,
        request: WireMessage,
        answer: type[A],
        *,
        tries: Tries | None = None,
        call_s: float | None = None,
    ) -> A:
        """Ask until a member answers. Raises MetaError when etcd refuses; else Unanswered.

        Repeats the same request: the caller makes sure that two do no harm. `tries` is updated.
        """
        tries = Tries() if tries is None else tries
        call_s = self.call_s if call_s is None else call_s
        until_s = anyio.current_time() + call_s
        pause_s, logins, attempt = PAUSE_S, 0, 0
        others = set[int]()
        while True:
            left_s = until_s - anyio.current_time()
            if left_s <= 0:
                self._refuse_if_apart(others)
                raise Unanswered(self._why(tries, call_s), sent=tries.unsure)
            self._check()
            at = self._now
            limit_s = ATTEMPTS_S[attempt] if attempt < len(ATTEMPTS_S) else left_s
            try:
                return await self._ask(at, path, request, answer, min(left_s, limit_s))
            except StaleToken as stale:
                logins += 1
                if logins > LOGINS_MAX:
                    raise Unanswered(str(stale), sent=tries.unsure) from stale
                continue
            except Unanswered as failure:
                self._note_whose(failure, at, others)
                tries.unsure |= failure.sent
                if str(failure) not in tries.failures:
                    tries.failures.append(str(failure))
            attempt += 1
            if self._now == at:  # else another call has moved on already
                self._now = (at + 1) % len(self._members)
            if attempt % len(self._members) == 0:
                self._refuse_if_apart(others)
                await anyio.sleep(min(pause_s, max(0.0, until_s - anyio.current_time())))
                pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def follow(
        self,
        path: str,
        request: WireMessage,
        answer: type[A],
        wanted: Callable[[A], R | None],
        *,
        wait_s: float,
    ) -> R | None:
        """As `Member.follow`, of the member that is asked now; None after `wait_s`.

        Raises MetaError, or Unanswered: the next member is asked from then on.
        """
        self._check()
        at = self._now
        member = self._members[at]

        def judged(message: A) -> R | None:
            self._judge(getattr(message, "header", None), member, 0)
            return wanted(message)

        with anyio.move_on_after(wait_s):
            token = await self._authenticated(member, wait_s) if self.place.user else ""
            try:
                return await member.follow(path, request, answer, token, judged)
            except StaleToken as stale:
                if self._token == token:
                    self._token = ""
                raise Unanswered(str(stale), sent=False) from stale
            except Unanswered:
                if self._now == at:
                    self._now = (at + 1) % len(self._members)
                raise
            finally:
                if self._closed:
                    member.close()
        return None

    def refused(self, cause: str) -> StoreWentBack:
        """What each call raises from now on, for this cause."""
        self._wrong = self._wrong or cause
        return StoreWentBack(self._wrong)

    def close(self) -> None:
        """Close all connections; idempotent. Calls raise MetaError from now on."""
        self._closed = True
        for member in self._members:
            member.close()

    async def _ask(
        self, at: int, path: str, request: WireMessage, answer: type[A], deadline_s: float
    ) -> A:
        member = self._members[at]
        seen = self.revision
        until_s = anyio.current_time() + deadline_s
        token = await self._authenticated(member, deadline_s) if self.place.user else ""
        left_s = until_s - anyio.current_time()
        if left_s < min(SHORT_S, deadline_s / 2):
            # Not asked: that it does not answer within no time says nothing of the member.
            raise Unanswered("the login took the time of the call", sent=False)
        try:
            found = await member.ask(path, request, answer, token, left_s)
        except StaleToken:
            if self._token == token:
                self._token = ""
            raise
        finally:
            if self._closed:  # grpclib would have connected again during `close`
                member.close()
        # Not in the order of the log: a member that lags behind says its own revision there.
        seen = 0 if path == LEASE_KEEP_ALIVE else seen
        self._judge(getattr(found, "header", None), member, seen)
        return found

    async def _authenticated(self, member: Member, deadline_s: float) -> str:
        """The token, perhaps of a login that another call has begun. Raises as `Member.ask`."""
        until_s = anyio.current_time() + deadline_s
        # One call after the other logs in, and a member may be silent to each of them.
        with anyio.move_on_after(deadline_s) as waiting:
            await self._login.acquire()
        if waiting.cancelled_caught:
            cause = f"no login at etcd within {deadline_s:.2g} s"
            raise Unanswered(cause, sent=False)
        try:
            if not self._token:
                left_s = until_s - anyio.current_time()
                self._token = await self._logged_in(member, left_s)
            return self._token
        finally:
            self._login.release()

    async def _logged_in(self, member: Member, deadline_s: float) -> str:
        request = AuthenticateRequest(name=self.place.user, password=self._password())
        path = "/etcdserverpb.Auth/Authenticate"
        try:
            found = await member.ask(path, request, AuthenticateResponse, "", deadline_s)
        except Unanswered as failure:
            raise Unanswered(str(failure), sent=False, by_etcd=failure.by_etcd) from failure
        return found.token

    def _judge(self, header: ResponseHeader | None, member: Member, seen: int) -> None:
        if header is None:
            return
        self.cluster_id = self.cluster_id or header.cluster_id
        if header.cluster_id != self.cluster_id:
            fact = (
                f"{member.address} belongs to etcd cluster {header.cluster_id:x}, and an endpoint"
                f" asked before to {self.cluster_id:x}"
            )
            self._note_apart(fact)
            cause = f"{fact}; name members of one cluster in {self.place}"
            if not member.strange:  # once: it is asked again whenever the others do not answer
                log.warning("passing over an endpoint of another etcd cluster", error=cause)
            member.strange = True
            raise _OtherCluster(cause, sent=False)
        member.strange = False
        self._apart = None
        if header.revision and header.revision < seen:
            self._wrong = (
                f"etcd at {member.address} is at revision {header.revision} and was at {seen}: it"
                " was restored from a backup, and what was written since is lost; restore"
                " a newer one, and start this process again"
            )
        self._check()
        self.revision = max(self.revision, header.revision)

    def _note_apart(self, fact: str) -> None:
        now_s = anyio.current_time()
        if self._apart is None or now_s - self._apart.last_s > APART_S:
            self._apart = _Apart(now_s, now_s, fact)
        self._apart.last_s, self._apart.fact = now_s, fact

    def _note_whose(self, failure: Unanswered, at: int, others: set[int]) -> None:
        """`others`: the members that one call has found in another cluster; refuse if it is all."""
        if not isinstance(failure, _OtherCluster):
            if failure.by_etcd and not self._members[at].strange:
                self._apart = None  # the own cluster is there, though it cannot answer
            return
        others.add(at)
        if len(others) == len(self._members):
            cause = f"{failure}; start this process again, which then says what to do"
            raise self.refused(cause) from failure

    def _refuse_if_apart(self, others: set[int]) -> None:
        """For a call that no member has answered, after it has asked each or as many as it can."""
        apart = self._apart
        if not others or apart is None or apart.last_s - apart.first_s < APART_S:
            return
        raise self.refused(
            f"{apart.fact}; no endpoint of cluster {self.cluster_id:x} has answered for"
            f" {APART_S:g} s, so etcd was restored from a backup, or {self.place} names members"
            " of two clusters: correct that, or start this process again, which then says what"
            " to do"
        )

    def _check(self) -> None:
        if self._closed:
            raise MetaError(f"{self.place}: the metadata store is closed")
        if self._wrong:
            raise StoreWentBack(self._wrong)

    def _why(self, tries: Tries, call_s: float) -> str:
        reasons: Sequence[str] = tries.failures or ["no attempt was made"]
        return f"no answer from {self.place} for {call_s:g} s: {'; '.join(reasons[-3:])}"
