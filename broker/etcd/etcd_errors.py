"""What an answer of etcd that is an error means, and what to do about it.

By the text where one gRPC code stands for several errors: etcd's own clients tell them apart so.
"""

import ssl
from typing import Final

from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from h2.exceptions import ProtocolError as H2ProtocolError

from broker.ports.meta import LastingFailure, MetaError, UnusableStore
from broker.transport.tls import LOST_IN_HANDSHAKE, failed_check, is_lost


class Unanswered(Exception):
    """No answer that says what became of the call: ask again, or ask another member.

    `sent`: the call may have been carried out, or may still be. `by_etcd`: the member is there, and
    says itself that it cannot tell now, as without a leader.
    """

    def __init__(self, cause: str, *, sent: bool = True, by_etcd: bool = False) -> None:
        super().__init__(cause)
        self.sent = sent
        self.by_etcd = by_etcd


class StaleToken(Exception):
    """The user must be authenticated again; the call was not carried out."""


class EtcdRefused(LastingFailure):
    """etcd refused the call, which was not carried out. A retry would find the same."""


class NoSpace(MetaError):
    """etcd's database is full. The call may have been carried out: it says so afterwards, too."""


class LeaseGone(MetaError):
    """The lease of a put does not exist any more; the call was not carried out."""


class RevisionCompacted(MetaError):
    """The revision that was to be read does not exist any more."""


class StoreWentBack(UnusableStore):
    """etcd is at an older state than before, or is another one: nothing is read or written."""


_ETCD: Final = "etcdserver: "
"""Begins what etcd says, and not what grpclib or a load balancer says in its place."""
_STALE: Final = ("invalid auth token", "revision of auth store is old")
_PASSING: Final = ("too many requests",)
_ADVICE: Final = {
    "user name is empty": "etcd asks for a user: name it in the URL, as etcd://USER@HOST/PREFIX",
    "permission denied": "grant the user's role readwrite permission for the prefix",
    "invalid user ID or password": "check the user in the URL, and meta_password_file",
    "authentication is not enabled": "run `etcdctl auth enable`, or take the user out of the URL",
    "request is too large": "etcd runs with a smaller --max-request-bytes than its default",
    "too many operations": "etcd runs with a smaller --max-txn-ops than its default, 128",
    "corrupt": "etcd found that its members differ; repair it as its documentation says",
}


def told(error: Exception, address: str, deadline_s: float) -> Exception:
    """What to raise for an error of a call: one of the above, or the error as it is."""
    match error:
        case GRPCError():
            return _refusal(error, address)
        case TimeoutError():
            return Unanswered(f"etcd at {address} did not answer within {deadline_s:.2g} s")
        # These before OSError, their superclass.
        case ssl.SSLError() if not is_lost(error):
            return Unanswered(f"etcd at {address}: {failed_check(error)}", sent=False)
        case ConnectionRefusedError():
            return Unanswered(f"nothing listens at {address}", sent=False)
        case OSError() | StreamTerminatedError() | ProtocolError() | H2ProtocolError():
            return Unanswered(f"etcd at {address}: {str(error) or LOST_IN_HANDSHAKE}")
        case _:
            return error


def _refusal(error: GRPCError, address: str) -> Exception:
    said = (error.message or error.status.name).removeprefix(_ETCD)
    cause = f"etcd at {address}: {said}"
    if error.status is Status.UNAUTHENTICATED or any(it in said for it in _STALE):
        return StaleToken(cause)
    if "database space exceeded" in said:
        return NoSpace(
            f"{cause}: its database is full; compact and defragment it (`etcdctl compact`,"
            " `etcdctl defrag`) or raise --quota-backend-bytes, then run `etcdctl alarm disarm`"
        )
    if "requested lease not found" in said:
        return LeaseGone(cause)
    if "revision has been compacted" in said:
        return RevisionCompacted(cause)
    advice = next((advice for text, advice in _ADVICE.items() if text in said), "")
    if advice:
        return EtcdRefused(f"{cause}; {advice}")
    definite = (
        Status.INVALID_ARGUMENT,
        Status.PERMISSION_DENIED,
        Status.UNIMPLEMENTED,
        Status.FAILED_PRECONDITION,
        Status.RESOURCE_EXHAUSTED,
        Status.DATA_LOSS,
        Status.NOT_FOUND,
    )
    if error.status in definite and not any(it in said for it in _PASSING):
        return EtcdRefused(cause)
    return Unanswered(cause, by_etcd=(error.message or "").startswith(_ETCD))
