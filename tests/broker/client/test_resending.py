"""P44, P45: what is sent again, and what comes of it, against a server that only counts."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from broker.client.append.outbox import Outbox, PendingAppend, SendLimits
from broker.client.net.retry_rules import RetryVerdict, append_verdict, may_be_written
from broker.model.failure import StreamingCode

CODES = [code for code in StreamingCode if code is not StreamingCode.OK]
FATES = st.one_of(
    st.sampled_from(["stored", "reply lost", "request lost"]),
    st.tuples(st.sampled_from(CODES), st.booleans()),
)


class Server:
    """It counts what it stores, and knows of which appends the client cannot be sure."""

    def __init__(self, outbox: Outbox[int]) -> None:
        self.outbox = outbox
        self.stored: Counter[int] = Counter()
        self.doubtful: set[int] = set()
        self.ended: set[int] = set()

    def handle(self, request_id: int, number: int, fate: str | tuple[StreamingCode, bool]) -> None:
        if isinstance(fate, tuple):
            self.refuse(request_id, number, *fate)
        elif fate == "stored":
            self.stored[number] += 1
            assert self.outbox.answered(request_id) is not None
            self.ended.add(number)
        else:
            self.stored[number] += fate == "reply lost"
            self.doubtful.add(number)

    def refuse(self, request_id: int, number: int, code: StreamingCode, heard: bool) -> None:
        if may_be_written(code):  # of the others it is certain that they were not stored
            self.stored[number] += heard
            self.doubtful.add(number)
        told = self.outbox.refused(request_id, code, "", resend=True)
        assert told is not None
        assert told[0] is append_verdict(code)
        if told[0] is RetryVerdict.SURFACE:
            self.ended.add(number)


@given(st.integers(1, 6), st.lists(FATES, max_size=40))
def test_only_a_lost_reply_doubles_and_only_what_no_retry_mends_surfaces(
    count: int, fates: list[str | tuple[StreamingCode, bool]]
) -> None:
    outbox: Outbox[int] = Outbox(SendLimits())
    server = Server(outbox)
    for number in range(count):
        outbox.offer(PendingAppend(bytes([number]), 1.0, number))
    while fates and outbox.to_send:
        for request_id, message in outbox.take(1 << 20):
            server.handle(request_id, message[0], fates.pop() if fates else "request lost")
        assert outbox.stream_lost(resend=True) == []
    for left in outbox.clear():
        number = left.pending.waiter
        assert left.maybe_written == (number in server.doubtful)
        assert number not in server.ended
        server.ended.add(number)
    assert server.ended == {*range(count)}
    for number, times in server.stored.items():
        assert times <= 1 or number in server.doubtful
