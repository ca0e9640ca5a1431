"""Members that wait: what says that their streams live, and what it costs."""

from pathlib import Path

import pytest

from broker.client.groups.group_subscription import JOIN, QUIET_S
from broker.client.net.control_messages import consumer_metadata
from broker.client.read.resuming_reader import SILENCE_S
from broker.core.naming import pchannel_of
from broker.edge.groups import group_member
from broker.edge.groups.group_member import LIFE_S
from broker.model.ids import VChannelName
from schemas.encoding.frames import frame
from schemas.generated.tidemark import v1
from tests.broker.client.groups.test_groups import running


def test_a_stream_is_shown_alive_before_anybody_doubts_it() -> None:
    assert LIFE_S < QUIET_S < SILENCE_S
    assert QUIET_S - LIFE_S >= 5 <= SILENCE_S - QUIET_S, "a server under load is late"


async def test_a_stream_without_messages_carries_empty_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_member, "LIFE_S", 0.05)
    async with running(tmp_path) as (_, log):
        (vchannel,) = (await log.collections.create("trains", shards=1)).vchannels
        await log.group("workers").create("trains")
        network = log._network
        location = await network.assignments.locate(
            pchannel_of(VChannelName(vchannel)), deadline_s=10
        )
        connection = network.connection(location.address)
        metadata = consumer_metadata(location.channel, location.node)
        async with connection.converse(JOIN, metadata, deadline_s=10) as stream:
            opening = v1.GroupOpen(vchannel=vchannel, group="workers", member="ann")
            request = v1.JoinGroupRequest(open=opening, credit_bytes=1000)
            await stream.write(frame(bytes(request)), 10)
            answers: list[bytes] = []
            while len(answers) < 5:
                answers += await stream.read(30)
        accepted, joined, *rest = answers
        assert accepted == b""
        assert v1.JoinGroupResponse.parse(joined).joined is not None
        assert rest == [b""] * 3
