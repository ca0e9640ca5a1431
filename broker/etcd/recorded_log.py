"""Where the log is, as the record of a store in etcd says."""

from dataclasses import replace
from typing import Final

from broker.etcd.members import Members
from broker.etcd.requests import RANGE, TXN, at_revision
from broker.etcd.store_record import StoreRecord
from broker.ports.meta import MetaError
from schemas.generated.etcdserverpb import (
    PutRequest,
    RangeRequest,
    RangeResponse,
    RequestOp,
    TxnRequest,
    TxnResponse,
)

ATTEMPTS_MAX: Final = 3


class RecordedLog:
    """Reads and corrects it. Each call raises MetaError."""

    def __init__(self, members: Members, key: bytes) -> None:
        self._members = members
        self._key = key

    async def place(self) -> str:
        """Where the log is; "" where nobody has said so."""
        return (await self._record())[0].log

    async def correct(self, place: str) -> None:
        """Say that it is there now."""
        for _ in range(ATTEMPTS_MAX):
            found, revision = await self._record()
            if found.log == place:
                return
            put = PutRequest(key=self._key, value=replace(found, log=place).encoded())
            request = TxnRequest(
                compare=[at_revision(put.key, revision)],
                success=[RequestOp(request_put=put)],
            )
            if (await self._members.answered(TXN, request, TxnResponse)).succeeded:
                return
        cause = "others write the record of the store again and again"
        raise MetaError(f"{self._members.place}: {cause}")

    async def _record(self) -> tuple[StoreRecord, int]:
        """The record of the store, and its revision."""
        place = self._members.place
        answer = await self._members.answered(RANGE, RangeRequest(key=self._key), RangeResponse)
        if not answer.kvs:
            raise MetaError(f"{place}: the record of the store is gone")
        return StoreRecord.decoded(answer.kvs[0].value, place), answer.kvs[0].mod_revision
