"""Every property key with a meaning, each with the text form of its value.

Reserved keys begin with an underscore and are Milvus's; `tidemark.key` is ours. Properties
themselves are plain `dict[str, str]`, as on the wire.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from schemas.encoding.base36 import INT64_MAX, base36, read_base36, rocksmq_id, rocksmq_id_text
from schemas.encoding.base64_text import base64_text, read_base64
from schemas.encoding.varint import Malformed, shown
from schemas.properties.txn_context import TxnContext

T = TypeVar("T")

_INT32_MAX: Final = (1 << 31) - 1


class BadProperty(ValueError):
    """A property whose text does not have the form that its key asks for, or that is missing."""

    def __init__(self, key: str, value: str | None, why: str) -> None:
        found = "is missing" if value is None else f"is {shown(value)}: {why}"
        super().__init__(f"property {key} {found}")
        self.key = key
        self.value = value
        self.why = why


@dataclass(frozen=True, slots=True)
class Property(Generic[T]):
    """One key, and how its value is written and read."""

    key: str
    encode: Callable[[T], str]
    _decode: Callable[[str], T]

    def decode(self, text: str) -> T:
        """Raises BadProperty."""
        try:
            return self._decode(text)
        except Malformed as error:
            raise BadProperty(self.key, text, error.what) from None

    def read(self, properties: Mapping[str, str]) -> T | None:
        """The value; None when the key is absent. Raises BadProperty."""
        text = properties.get(self.key)
        return None if text is None else self.decode(text)

    def need(self, properties: Mapping[str, str]) -> T:
        """The value. Raises BadProperty, also when the key is absent."""
        value = self.read(properties)
        if value is None:
            raise BadProperty(self.key, None, "")
        return value

    def entry(self, value: T) -> dict[str, str]:
        """A mapping of this one property, to be joined with `|`."""
        return {self.key: self.encode(value)}


@dataclass(frozen=True, slots=True)
class Flag:
    """A key whose presence says yes; its value is the empty string."""

    key: str

    def read(self, properties: Mapping[str, str]) -> bool:
        return self.key in properties

    def entry(self) -> dict[str, str]:
        """A mapping of this one property, to be joined with `|`."""
        return {self.key: ""}


def _read_decimal(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 11) or int(text) > _INT32_MAX:
        raise Malformed("not a decimal number of 32 bits", 0)
    return int(text)


def _base36_text(value: int) -> str:
    return base36(value).decode("ascii")


def _read_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > INT64_MAX:
        raise Malformed("not a decimal number of 63 bits", 0)
    return int(text)


def _read_term(text: str) -> int:
    if (value := read_base36(text)) > INT64_MAX:
        raise Malformed("not a signed number of 64 bits", 0)
    return value


def _plain(text: str) -> str:
    return text


def _decimal(key: str) -> Property[int]:
    return Property(key, str, _read_decimal)


def _bytes(key: str) -> Property[bytes]:
    return Property(key, base64_text, read_base64)


VERSION: Final = _decimal("_v")
"""Message format: 0 old, 1, 2; absent is old."""
TYPE: Final = _decimal("_t")
"""Number of a `messages.MessageType`."""
HEADER: Final = _bytes("_h")
"""Bytes of the header message of the type; an empty header is the empty string, still present."""
VCHANNEL: Final = Property("_vc", _plain, _plain)
"""Absent: the message is seen on every vchannel of the pchannel."""
TIME_TICK: Final = Property("_tt", _base36_text, read_base36)
BARRIER_TICK: Final = Property("_btt", _base36_text, read_base36)
"""The time tick must come out greater than this."""
BARRIER_WAIT_MS: Final = Property("_btt_wait_ms", str, _read_count)
"""Ours, beside `_btt`: how many milliseconds the append may wait for the oracle."""
WAL_TERM: Final = Property("_wt", _base36_text, _read_term)
LAST_CONFIRMED: Final = Property("_lc", rocksmq_id_text, rocksmq_id)
"""A RocksMQ id."""
LAST_CONFIRMED_SELF: Final = Flag("_lcs")
"""The message's own id; wins over `_lc`."""
TXN: Final = Property(
    "_tx",
    lambda context: base64_text(context.encode()),
    lambda text: TxnContext.decode(read_base64(text)),
)
BROADCAST: Final = _bytes("_bh")
"""Bytes of a `messages.BroadcastHeader`."""
REPLICATE: Final = _bytes("_rh")
"""Bytes of a `messages.ReplicateHeader`."""
CIPHER: Final = _bytes("_ch")
"""Bytes of a `messages.CipherHeader`; the payload is encrypted."""
NOT_PERSISTED: Final = Flag("_np")
"""On time ticks that are only announced."""
PCHANNEL_LEVEL: Final = Flag("_pcl")
"""A broadcast to whole pchannels."""
NOT_REPLICATED: Final = Flag("_ur")
"""Must not be copied to another cluster."""
TRACE: Final = _bytes("_tc")
"""Bytes of a `messages.TraceContextHeader`."""
DELIVER_AT: Final = Property("_deliver_at", str, _read_count)
"""Ours: groups get the message at this Unix time in milliseconds, and not before."""
DELIVER_TTL: Final = Property("_deliver_ttl", str, _read_count)
"""Ours: for how many milliseconds groups get the message."""
DELIVER_ID: Final = Property("_deliver_id", str, _read_count)
"""Ours: on the copy of a delayed message that is due, the id of the message."""
DEAD_COPY: Final = Flag("_dead")
"""Ours: the broker made this copy of a message that no member of a group could process."""
DELIVER_PREFIX: Final = b"_deliver_"
"""A search for it in the bytes tells most batches apart without decoding them."""
ROW_KEY: Final = _bytes("tidemark.key")
"""Ours: the key of the row in the payload."""
ROW_SCHEMA: Final = _decimal("tidemark.schema")
"""Ours: which version of its collection's schema a row of Arrow has, from 1 on."""


@dataclass(frozen=True, slots=True)
class StageKey:
    """Which attempt at which part of which batch of an app a staged transaction is of."""

    app: str
    batch: int
    part: int
    attempt: int


def _write_stage(key: StageKey) -> str:
    return f"{key.batch}:{key.part}:{key.attempt}:{key.app}"


def _read_stage(text: str) -> StageKey:
    # The app comes last: its name may contain colons.
    *numbers, app = text.split(":", 3)
    good = [it.isascii() and it.isdigit() and len(it) < 20 for it in numbers]
    if len(numbers) != 3 or not all(good):
        raise Malformed("not of the form <batch>:<part>:<attempt>:<app>", 0)
    batch, part, attempt = map(int, numbers)
    return StageKey(app, batch, part, attempt)


STAGE: Final = Property("tidemark.stage", _write_stage, _read_stage)
"""Ours: on the begin of a staged transaction."""
STAGE_RUN: Final = Property("tidemark.stage_run", str, _read_count)
"""Ours: beside `STAGE`, in which life of the app it is staged; absent: the app does not say."""

BATCH: Final = Property("tidemark.batch", _plain, _plain)
"""Ours: on the commit of a staged transaction, which batch it belongs to (`batch_mark`)."""

RESERVED_PREFIX: Final = "_"


def last_confirmed(properties: Mapping[str, str], message_id: int) -> int:
    """From which id on a reader sees all that follows this message. Raises BadProperty."""
    if LAST_CONFIRMED_SELF.read(properties):
        return message_id
    return LAST_CONFIRMED.need(properties)


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The client's own name for an append, unique within its scope."""

    domain: int
    """1 cluster, 2 database, 3 collection."""
    scope_id: int
    client_key: str


def _write_idempotency(key: IdempotencyKey) -> str:
    return f"{key.domain}:{key.scope_id}:{key.client_key}"


def _read_idempotency(text: str) -> IdempotencyKey:
    # Cut at the first two colons only: the client's key may contain more.
    domain, first, rest = text.partition(":")
    scope_id, second, client_key = rest.partition(":")
    scope_is_number = scope_id.isascii() and scope_id.isdigit() and len(scope_id) < 20
    if not first or not second or domain not in ("1", "2", "3") or not scope_is_number:
        raise Malformed("not of the form <domain 1-3>:<scope id>:<client key>", 0)
    return IdempotencyKey(int(domain), int(scope_id), client_key)


IDEMPOTENCY: Final = Property("_ik", _write_idempotency, _read_idempotency)
