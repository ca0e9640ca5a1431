"""A call that was let in and has not said yet what it wants, when its caller loses the right."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from grpclib.const import Cardinality, Status
from grpclib.exceptions import GRPCError

from broker.addresses import split_address
from broker.core.security.tokens import read_token
from broker.transport import Channel, MessageCodec
from broker.transport.codec import RawDetailsCodec
from schemas.generated.tidemark import v1
from tests.broker.client.access.test_auth import ADMIN, GUARD_S, world

pytestmark = pytest.mark.asyncio


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(GUARD_S):
        while not holds():  # noqa: ASYNC110 - of another part of this process
            await anyio.sleep(0.01)


async def test_a_revoked_token_that_has_a_call_open_makes_no_other_token(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, root):
        leaked = await root.auth.add_token(ADMIN)
        channel = Channel(
            *split_address(here.broker.address),
            codec=MessageCodec(),
            status_details_codec=RawDetailsCodec(),
        )
        before = here.broker.edge.open_calls
        try:
            call = channel.request(
                "/tidemark.v1.Auth/AddToken",
                Cardinality.STREAM_STREAM,
                v1.AddTokenRequest,
                v1.AddTokenResponse,
                metadata={"authorization": f"Bearer {leaked.text}"},
            )
            async with call as late:
                await late.send_request()  # the headers alone
                await until(lambda: here.broker.edge.open_calls > before)
                await root.auth.revoke_token(leaked.info.id)
                given = read_token(leaked.text)
                assert given is not None
                gate = here.broker.edge.access
                await until(lambda: gate.book.bearer(given, gate.now_ms()) is None)
                gate.look()  # as it does every second
                await late.send_message(v1.AddTokenRequest(user=ADMIN), end=True)
                with pytest.raises(GRPCError) as refused:
                    await late.recv_message()
                assert refused.value.status is Status.UNAUTHENTICATED
        finally:
            channel.close()
        found = await root.auth.show()
        assert leaked.info.id not in [it.id for it in found.tokens]
        assert len(found.tokens) == 1
