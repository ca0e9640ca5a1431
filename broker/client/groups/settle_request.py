"""What a member says of messages that it has on lease, and how that is sent."""

from collections.abc import Sequence
from dataclasses import dataclass

from broker.model.groups.consumer_group import TickSpan
from schemas.acks import ack_request
from schemas.encoding.frames import frame
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded


@dataclass(slots=True)
class SettleRequest:
    """About `spans` of a lease, or all that is left of it for none. `number`: of its stream."""

    lease: int
    spans: Sequence[TickSpan]
    how: v1.Settlement
    txn_id: int = 0
    delay_ms: int = 0
    cause: str = ""
    number: int = 0

    @property
    def is_plain_ack(self) -> bool:
        """Whether it acknowledges outside of transactions."""
        return self.how is v1.Settlement.ACKNOWLEDGE and not self.txn_id

    @property
    def is_about_time(self) -> bool:
        """Whether it begins or extends a lease, and so settles nothing."""
        return self.how in (v1.Settlement.EXTEND, v1.Settlement.BEGIN)

    def framed(self, credit_bytes: int) -> bytes:
        """A request of its own, which grants so many bytes."""
        if self.is_plain_ack:
            spans = [(it.after, it.upto) for it in self.spans]
            return ack_request(self.number, self.lease, spans, credit_bytes)
        whole = v1.JoinGroupRequest(settle=[self.message()], credit_bytes=credit_bytes)
        return frame(encoded(whole))

    def message(self) -> v1.SettleMessages:
        """To be sent together with others."""
        return v1.SettleMessages(
            number=self.number,
            lease=self.lease,
            spans=[v1.TickSpan(after=it.after, upto=it.upto) for it in self.spans],
            how=self.how,
            delay_ms=self.delay_ms,
            txn_id=self.txn_id,
            cause=self.cause,
        )
