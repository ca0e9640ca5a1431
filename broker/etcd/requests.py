"""The requests of the driver, as messages of etcd's protocol."""

from collections.abc import Iterable, Mapping, Sequence

from broker.ports.meta import MetaError
from schemas.generated.etcdserverpb import (
    Compare,
    CompareCompareTarget,
    DeleteRangeRequest,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
    TxnResponse,
)

RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
DELETE_RANGE = "/etcdserverpb.KV/DeleteRange"
WATCH = "/etcdserverpb.Watch/Watch"
LEASE_GRANT = "/etcdserverpb.Lease/LeaseGrant"
LEASE_REVOKE = "/etcdserverpb.Lease/LeaseRevoke"
LEASE_KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"


class Keys:
    """The keys below one prefix: those of the port, and what the driver keeps for itself."""

    def __init__(self, prefix: str) -> None:
        self._keys = f"{prefix}/tidemark/keys/".encode()
        self._writers = f"{prefix}/tidemark/writers/"
        self.store = f"{prefix}/tidemark/store".encode()
        """The record that says whose store this is."""
        self.beat = f"{prefix}/tidemark/beat".encode()
        """Written again and again, without a value: see `store_beat.py`."""
        self.present = f"{prefix}/tidemark/present/".encode()
        """Below it, under leases, stands which processes run."""

    def encoded(self, key: str) -> bytes:
        """The key in etcd, which orders bytes as the port orders code points. MetaError."""
        try:
            return self._keys + key.encode()
        except UnicodeEncodeError as error:
            raise MetaError(f"{key!r} is no text: {error}") from error

    def decoded(self, key: bytes) -> str:
        """The key of the port."""
        return key.removeprefix(self._keys).decode()

    @property
    def all_present(self) -> tuple[bytes, bytes]:
        """From where, and up to where without it, those that run have announced themselves."""
        return self.present, self.present[:-1] + b"0"

    def range_of(self, prefix: str, after: str) -> tuple[bytes, bytes]:
        """From where, and up to where without it, the keys with this prefix above `after` lie."""
        start = self.encoded(prefix)
        # Its last byte is never 255: that is no part of UTF-8.
        end = start[:-1] + bytes([start[-1] + 1])
        return max(start, self.encoded(after) + b"\0") if after else start, end

    def writer(self, session: int, number: int) -> bytes:
        """The key of one place in which a write leaves its number."""
        return f"{self._writers}{session:x}/{number}".encode()


def write_request(
    puts: Mapping[bytes, bytes],
    deletes: Sequence[bytes],
    expect: Mapping[bytes, int],
    place: tuple[bytes, int],
    mark: PutRequest,
) -> TxnRequest:
    """One write, which also expects `place` at its revision and puts `mark` there.

    Where something is not as expected, the answer has the place and the revisions of `expect`, in
    this order.
    """
    changes = [RequestOp(request_put=mark)]
    changes += [RequestOp(request_put=PutRequest(key=key, value=it)) for key, it in puts.items()]
    changes += [
        RequestOp(request_delete_range=DeleteRangeRequest(key=key))
        # etcd refuses a transaction that changes a key twice.
        for key in dict.fromkeys(deletes)
        if key not in puts
    ]
    found = [RangeRequest(key=place[0])]
    found += [RangeRequest(key=key, keys_only=True) for key in expect]
    return TxnRequest(
        compare=[at_revision(*place), *[at_revision(key, it) for key, it in expect.items()]],
        success=changes,
        failure=[RequestOp(request_range=each) for each in found],
    )


def repeatable_request(puts: Mapping[bytes, bytes], expect: Mapping[bytes, int]) -> TxnRequest:
    """A write without a place: one that does no harm when it is carried out again, or late."""
    return TxnRequest(
        compare=[at_revision(key, it) for key, it in expect.items()],
        success=[RequestOp(request_put=PutRequest(key=key, value=it)) for key, it in puts.items()],
    )


def read_request(keys: Iterable[bytes]) -> TxnRequest:
    """Several keys of one moment."""
    return TxnRequest(
        success=[RequestOp(request_range=RangeRequest(key=each)) for each in keys],
    )


def at_revision(key: bytes, revision: int) -> Compare:
    """Whether a write of this revision was the last of the key; 0: whether it is absent."""
    return Compare(target=CompareCompareTarget.MOD, key=key, mod_revision=revision)


def found_in(answer: TxnResponse) -> list[tuple[bytes, int]]:
    """Value and revision of each key that a transaction has read, in its order; 0 for none."""
    found = []
    for each in answer.responses:
        kvs = each.response_range.kvs if each.response_range is not None else []
        found.append((kvs[0].value, kvs[0].mod_revision) if kvs else (b"", 0))
    return found
