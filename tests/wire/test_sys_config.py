"""SysConfigRequest and SysConfigResponse, as a client of any gRPC library sends them."""

from pathlib import Path

import grpc.aio

from schemas.generated.tidemark import v1
from tests.local_broker import local_broker

REQUEST = "/tidemark.v1.SysConfig/Request"
SET = "/tidemark.v1.SysConfig/Set"
VALUES = {
    "a/suba1": "v1",
    "a/suba2": "v2",
    "a/suba3/subsuba1": "v3",
    "a/suba3/subsuba2": "v4",
    "pulsar/ip": "10.0.0.1",
}


async def test_prefixes_are_answered_first_then_keys_and_each_key_once(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        grpc.aio.insecure_channel(broker.address) as channel,
    ):
        request = channel.unary_unary(REQUEST, bytes, v1.SysConfigResponse.parse)
        changes = [v1.ConfigChange(key=key, value=value) for key, value in VALUES.items()]
        await channel.unary_unary(SET, bytes, v1.SetConfigResponse.parse)(
            v1.SetConfigRequest(changes=changes)
        )
        found = await request(
            v1.SysConfigRequest(
                msg_type=105,
                req_id=7,
                keys=["/pulsar/ip", "/A/suba1", "/pulsar/ip"],
                key_prefixes=["/a/suba3", "/a"],
            )
        )
        assert found.status is not None
        assert (found.status.error_code, found.status.reason) == (0, "")
        pairs = dict(zip(found.keys, found.values, strict=True))
        assert list(pairs) == [
            "/a/suba3/subsuba1",
            "/a/suba3/subsuba2",
            "/a/suba1",
            "/a/suba2",
            "/pulsar/ip",
        ]
        assert pairs == {f"/{key}": value for key, value in VALUES.items()}
        nothing = await request(v1.SysConfigRequest(key_prefixes=["/config"]))
        assert (list(nothing.keys), list(nothing.values)) == ([], [])
        for bad, code, says in (
            (v1.SysConfigRequest(keys=["/a/suba1", "/none"]), 1, "/none"),
            (v1.SysConfigRequest(key_prefixes=["/../.."]), 5, "'..'"),
            (v1.SysConfigRequest(msg_type=104), 5, "send 105"),
        ):
            answer = await request(bad)
            assert answer.status is not None
            assert answer.status.error_code == code
            assert says in answer.status.reason
            assert not answer.keys
