"""What a Milvus producer sends: the scanners of the Produce stream, and the checks behind them."""

from broker.codec.stored_headers import StoredHeaders
from broker.edge.milvus.message_admission import MessageAdmission
from broker.model.failure import Refusal
from broker.model.ids import PChannelName
from broker.ports.headers import BadHeader
from schemas.answers import message, produce_request
from schemas.encoding.varint import Malformed
from schemas.produced_runs import scan_produce_requests
from schemas.scan import ScannedProduce, request_id_at, scan_produce_request
from schemas.stored import size_of, taken_apart

PCHANNEL = PChannelName("by-dev-rootcoord-dml_0")
_BYTES_MAX = 1 << 20
_HEADERS = StoredHeaders()


def check(data: bytes) -> None:
    """Refused as Malformed, or admitted; and what was admitted can be taken apart again."""
    request_id_at(data)
    try:
        found = scan_produce_request(data)
    except Malformed:
        return
    runs, _ = scan_produce_requests([data, data], 0)
    assert sum(len(run.bodies) for run in runs) <= 2
    if isinstance(found, ScannedProduce):
        _admit(found)


def _admit(found: ScannedProduce) -> None:
    admitted = MessageAdmission(PCHANNEL, _BYTES_MAX).judge(found.message)
    properties, _ = taken_apart(found.message.stored)
    assert size_of(found.message.stored) == found.message.size
    assert found.message.broadcast == ("_bh" in properties)
    if isinstance(admitted, Refusal):
        return
    try:
        _HEADERS.effect(admitted.type, admitted.body)
        _HEADERS.broadcast_marks(admitted.body, (len(admitted.body),))
        _HEADERS.plain_key(admitted.body)
        _HEADERS.delivery_times(admitted.body)
    except BadHeader:
        pass


def _request(number: int, kind: int, more: dict[str, str]) -> bytes:
    properties = {"_t": str(kind), "_v": "1", "_vc": f"{PCHANNEL}_1v0", **more}
    return produce_request(number, message(b"payload", properties))


SEEDS = (
    _request(1, 2, {"_h": ""}),
    _request(1 << 40, 2, {"_h": "CAESBAgCEAE=", "tidemark.key": "a2V5"}),
    _request(3, 3, {"_h": "CAEQAQ==", "_tx": "CAEQ6Ac=", "_btt": "zzzz"}),
    _request(4, 5, {"_h": "CAEQAg==", "_bh": "CAESA2FfMQ==", "tidemark.ddl": '{"arrow": ""}'}),
    _request(5, 900, {"_h": "CGQ=", "_ik": "1:2:key", "_tt": "1", "_lcs": "", "_np": ""}),
    b"\x12\x00",
)
