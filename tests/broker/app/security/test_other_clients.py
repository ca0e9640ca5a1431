"""grpc's own client, in C as in other languages, against a broker that asks for certificates."""

from pathlib import Path

import grpc
import pytest

from schemas.generated.grpc.health.v1 import HealthCheckRequest, HealthCheckResponse
from schemas.generated.grpc.health.v1 import HealthCheckResponseServingStatus as Serving
from tests.issued_files import Authorities
from tests.local_broker import local_broker

CHECK, GUARD_S = "/grpc.health.v1.Health/Check", 60.0


async def asked(address: str, credentials: grpc.ChannelCredentials) -> HealthCheckResponse:
    async with grpc.aio.secure_channel(address, credentials) as channel:
        call = channel.unary_unary(
            CHECK,
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )
        answer: HealthCheckResponse = await call(HealthCheckRequest(), timeout=GUARD_S)
        return answer


async def test_a_client_of_grpc_shows_its_certificate(tmp_path: Path) -> None:
    ours = Authorities(tmp_path / "tls")
    files = ours.server()
    given = {"tls_cert": files.cert, "tls_key": files.key, "tls_ca": files.client_ca}
    cert, key = ours.issue("app")
    roots = ours.ca.read_bytes()
    async with local_broker(tmp_path / "data", pchannels=1, **given) as broker:
        both = grpc.ssl_channel_credentials(roots, key.read_bytes(), cert.read_bytes())
        assert (await asked(broker.address, both)).status is Serving.SERVING
        with pytest.raises(grpc.aio.AioRpcError):
            await asked(broker.address, grpc.ssl_channel_credentials(roots))
