"""Requests of few fields are decoded at once, of many in a thread, of too many never."""

import threading
from collections.abc import Callable

import anyio
import pytest

from broker.edge.rpc.incoming.request_reader import (
    AT_ONCE,
    FIELDS_MAX,
    WAITING_BYTES_MAX,
    RequestReader,
)
from broker.model.failure import Refused, StreamingCode
from schemas.encoding.fields import field
from schemas.generated.tidemark import v1

FEW = b"\x0a\x01a"
MANY = b"\x0a\x01a" * (2 * AT_ONCE)
TOO_MANY = b"\x0a\x00" * (FIELDS_MAX + 1)
LARGE = MANY + field(0x7A, bytes(WAITING_BYTES_MAX * 2 // 3))


async def refusal_of(reader: RequestReader, data: bytes) -> tuple[StreamingCode, str]:
    with pytest.raises(Refused) as caught:
        await reader.read(data, v1.DescribeRequest)
    return caught.value.refusal.code, caught.value.refusal.cause


async def test_few_fields_are_decoded_at_once_and_many_in_a_thread_that_pauses() -> None:
    threads: list[threading.Thread] = []
    reader = RequestReader(pause=lambda: threads.append(threading.current_thread()))
    assert (await reader.read(FEW, v1.DescribeRequest)).channels == ["a"]
    assert threads == []
    assert len((await reader.read(MANY, v1.DescribeRequest)).channels) == 2 * AT_ONCE
    assert threads
    assert threading.main_thread() not in threads


async def test_a_request_of_too_many_fields_is_refused_with_what_to_do() -> None:
    code, cause = await refusal_of(RequestReader(), TOO_MANY)
    assert code is StreamingCode.INVALID_ARGUMENT
    assert cause.startswith(f"a message of more than {FIELDS_MAX} fields")
    assert cause.endswith("divide the DescribeRequest")


@pytest.mark.parametrize("data", [b"\x0a\xff", b"\x0a\x01\xff", MANY + b"\x0a"])
async def test_bytes_of_something_else_are_an_invalid_argument(data: bytes) -> None:
    code, cause = await refusal_of(RequestReader(), data)
    assert code is StreamingCode.INVALID_ARGUMENT
    assert cause.startswith("the bytes are not a DescribeRequest")


def until_it_may_go_on(goes_on: threading.Event) -> Callable[[], None]:
    def wait() -> None:
        assert goes_on.wait(60)

    return wait


async def test_large_requests_wait_and_one_beyond_the_memory_for_them_is_to_come_again() -> None:
    goes_on = threading.Event()
    reader, read = RequestReader(pause=until_it_may_go_on(goes_on)), list[int]()

    async def one(data: bytes) -> None:
        read.append(len((await reader.read(data, v1.DescribeRequest)).channels))

    async with anyio.create_task_group() as tasks:
        for data in (LARGE, *[MANY] * 100):
            tasks.start_soon(one, data)
        with anyio.fail_after(60):
            while reader.waiting_bytes < len(LARGE) + 100 * len(MANY):
                await anyio.lowlevel.checkpoint()
        code, cause = await refusal_of(reader, LARGE)
        # Those of few fields do not wait for them.
        assert (await reader.read(FEW, v1.DescribeRequest)).channels == ["a"]
        goes_on.set()
    assert code is StreamingCode.INNER
    assert "try again" in cause
    assert read == [2 * AT_ONCE] * 101
    assert reader.waiting_bytes == 0


async def test_one_request_is_decoded_however_large_it_is() -> None:
    data = MANY + field(0x7A, bytes(WAITING_BYTES_MAX + 1))
    found = await RequestReader().read(data, v1.DescribeRequest)
    assert len(found.channels) == 2 * AT_ONCE


async def test_many_small_requests_in_a_row_let_others_run() -> None:
    reader, ran = RequestReader(), False

    async def other() -> None:
        nonlocal ran
        ran = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        for _ in range(AT_ONCE):
            await reader.read(FEW, v1.DescribeRequest)
            if ran:
                break
        assert ran
