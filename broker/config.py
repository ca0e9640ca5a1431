"""Every setting of a broker, frozen: from flags, else `TIDEMARK_*`, else `tidemark.toml`.

Durations end in `_ms` or `_s`, sizes in `_bytes`, limits in `_max`, and say what they protect.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from broker.core.naming import PCHANNELS_MAX

MIB = 1024 * 1024
CONFIG_FILE = "tidemark.toml"

LEVEL = "(debug|info|warning|error)"
LEVELS = rf"^{LEVEL}(,[A-Za-z_][\w.]*={LEVEL})*$"

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]


class Settings(BaseSettings):
    """One broker process. A line of the file that is not a setting is refused."""

    model_config = SettingsConfigDict(
        env_prefix="TIDEMARK_", toml_file=CONFIG_FILE, frozen=True, extra="forbid"
    )

    data_dir: Path = Path("./tidemark-data")
    listen: str = "127.0.0.1:19531"
    """HOST:PORT; port 0 lets the system choose. There is no TLS, so loopback is the default."""
    advertise: str = ""
    """HOST:PORT that clients are told to use; empty: the address listened on."""

    cluster: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$", max_length=64)] = "by-dev"
    pchannels: Annotated[int, Field(gt=0, le=PCHANNELS_MAX)] = 16
    streaming: bool = True
    """False: a new cluster begins read-only, and takes no appends before `tidemark streaming
    enable`. Says nothing to one that is there."""
    node_id: Positive = 1
    """Of a node; of the first one, when `nodes` are started."""
    nodes: Annotated[int, Field(ge=0, le=64)] = 0
    """Node processes that `tidemark serve` starts and watches; 0: it is the node itself."""
    coordinator: str = ""
    """HOST:PORT of the coordinator that a node belongs to."""
    node_lease_s: Annotated[float, Field(ge=0.2, le=300)] = 5.0
    """A node that its coordinator has not heard of for so long writes no more, and its channels
    are given to others. Only silent nodes are waited for, dead ones are noticed at once; so it is
    longer than the restart of a coordinator takes, and than a busy machine keeps a node waiting."""
    coordinator_wait_s: Annotated[float, Field(gt=0)] = 60.0
    """A node that no coordinator has answered for so long since its start ends, and says why."""

    expected_nodes: NotNegative = 0
    """A coordinator that starts waits up to a minute for so many before it gives channels to any.
    0: it is not known how many there will be."""
    gather_grace_s: Annotated[float, Field(ge=0)] = 2.0
    """Then it waits this long from the first node on, or until all are back that owned channels."""
    node_lost_grace_s: Annotated[float, Field(ge=0)] = 0.0
    """A node that is gone has so long to come back before its channels are given to others."""

    balance_policy: Annotated[str, Field(pattern="^(vchannelFair|pchannel_count_fair)$")] = (
        "vchannelFair"
    )
    allow_rebalance: bool = True
    """False: channels move only when their node is gone, stops or is frozen."""
    balance_interval_s: Annotated[float, Field(gt=0)] = 60.0
    min_rebalance_interval_s: Annotated[float, Field(ge=0)] = 300.0
    """A channel that balance has moved stays so long where it is, before balance moves it again."""
    rebalance_lag_ms_max: NotNegative = 1_000
    """One that the next owner would have to read back for longer is not moved for balance."""

    message_bytes_max: Positive = 8 * MIB
    """A larger message is refused as UNRECOVERABLE on its own; the stream goes on."""
    frame_bytes_max: Positive = 16 * MIB
    """A larger gRPC frame ends its stream before memory is taken for it."""
    produce_inflight_bytes_max: Positive = 32 * MIB
    """Unanswered bytes of one Produce stream; beyond it the stream is not read."""
    consume_credit_bytes: Positive = 1 * MIB
    """Bytes fetched for one consumer before the earlier ones have been sent."""
    connections_max: Positive = 4096
    idle_peer_s: Annotated[float, Field(gt=0)] = 15.0
    """A peer that never finishes the handshake, or stops within a frame, is cut off after this."""

    node_acks: bool = True
    """A broadcast that asks for `ack_sync_up` is acknowledged on a vchannel when its node has taken
    note of the copy. False: only when a consumer says that it has processed it."""

    callbacks: str = ""
    """MODULE:NAME of a mapping from message type to callback: what is called, in the coordinator's
    process, when a broadcast of that type is on every vchannel and before its keys are let go."""

    require_collection: bool = False
    """Refuse rows for a vchannel on which no CreateCollection message created a collection."""

    tick_interval_ms: Positive = 200
    soft_tick_interval_ms: Positive = 500
    """Ticks of the whole cluster are at least so far apart: each one goes to all who watch."""
    silent_pchannel_s: Annotated[float, Field(gt=0)] = 10.0
    """A pchannel whose tick stands still for longer holds up the cluster's tick no more."""
    tail_bytes_max: Positive = 64 * MIB
    """Newest records kept in memory for each pchannel."""
    tail_total_bytes_max: Positive = 256 * MIB
    """The same, over all pchannels of the process."""
    tail_age_s: Annotated[float, Field(gt=0)] = 30.0

    open_txns_max: Positive = 1024
    """Open transactions of each pchannel: one more is refused until another has ended."""
    txn_bytes_max: Positive = 32 * MIB
    """Of one transaction: readers get it in one piece."""
    open_txn_bytes_max: Positive = 128 * MIB
    """Of all open transactions of a pchannel: so much may each of its readers have to hold."""
    txn_age_ms_max: Positive = 600_000
    """An older one is rolled back, whatever its keepalive: it holds up retention and recovery."""
    txn_keepalive_ms: Positive = 10_000
    """For a transaction that asks for none: so long after its newest message it expires."""
    txn_keepalive_ms_max: Positive = 600_000
    """Who asks for more is granted this."""
    stage_idle_ms: Positive = 600_000
    """A staged transaction that got no message for so long, and no commit, is rolled back."""
    stage_age_ms_max: Positive = 3_600_000
    """So is an older one: until its batch is committed it holds up retention and recovery."""
    pause_consumption: bool = False
    """Start with consumers held back until an operator resumes them; some may ignore it."""

    segment_bytes: Positive = 64 * MIB
    retention_bytes: NotNegative = 0
    """For each pchannel; whole old segments beyond this are dropped. 0 keeps all."""
    retention_ms: NotNegative = 0
    """Segments whose last message is older are dropped. 0 keeps all."""
    snapshot_period_s: Annotated[float, Field(gt=0)] = 10.0
    snapshot_records: Positive = 100
    """What a restart goes on from is saved after that time, or sooner after so many records."""
    skip_damage: bool = False
    """Open a log with a damaged record in its middle and read around it, instead of refusing."""

    drain_s: Annotated[float, Field(gt=0)] = 4.0
    """How long a stop waits for work in hand; a stop by SIGTERM is over within 5 s."""
    allow_chaos: bool = False
    """Anybody who reaches the port may have single actors killed; for practice."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """Prometheus metrics on 127.0.0.1 at /metrics; 0 lets the system choose. None: not served."""
    log_level: Annotated[str, Field(pattern=LEVELS)] = "warning"
    """For all loggers; `warning,broker.node=debug` sets some apart."""
    log_format: Annotated[str, Field(pattern="^(console|json)$")] = "console"
    """`console` is for people, in colours on a terminal; `json` is one object a line."""

    @field_validator("listen", "advertise", "coordinator")
    @classmethod
    def _is_host_and_port(cls, value: str) -> str:
        if value:
            split_address(value)
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def as_environment(settings: Settings) -> dict[str, str]:
    """The same settings for a process that is started with these variables."""
    return {f"TIDEMARK_{name.upper()}": str(it) for name, it in settings if it is not None}


def misspelt(names: Iterable[str]) -> list[str]:
    """Environment variables that look like settings and are none; others' may begin alike."""
    prefix = "TIDEMARK_"
    known = {f"{prefix}{name.upper()}" for name in Settings.model_fields} | {f"{prefix}SERVER"}
    return sorted(name for name in names if name.startswith(prefix) and name not in known)


def split_address(address: str) -> tuple[str, int]:
    """`HOST:PORT`, or `[V6]:PORT`, as a pair; ValueError with the mend when it is neither."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not HOST:PORT, such as 127.0.0.1:19531")
    return host.strip("[]"), int(port)
