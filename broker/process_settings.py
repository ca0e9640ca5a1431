"""The settings of a process: names, types, defaults, and what each must satisfy.

Names end in their unit (`_ms`, `_s`, `_bytes`); limits end in `_max`. The text below a setting is
its description in the generated table of settings.
"""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from broker.addresses import split_address, split_addresses, split_advertised
from broker.config_file import CLIENT_TABLE, CONFIG_FILE, BadConfig, client_config, read_config
from broker.core.naming import PCHANNELS_MAX
from broker.core.pressure.limit_rules import checked_limits
from broker.core.security.jwt_rules import ALGORITHMS, checked_algorithms
from broker.core.security.key_place import checked_key_place
from broker.etcd.place import checked_meta, etcd_place
from broker.wal.kafka.kafka_url import checked_wal

MIB = 1024 * 1024
PREFIX = "TIDEMARK_"
"""How environment variables with settings begin."""

LEVEL = "(debug|info|warning|error)"
LEVELS = rf"^{LEVEL}(,[A-Za-z_][\w.]*={LEVEL})*$"

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Percent = Annotated[int, Field(ge=1, le=100)]


class Settings(BaseSettings):
    """The settings of one process, frozen. An unknown name in the file is an error."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    config: Path | None = None
    """TOML file with settings, named as in this table; unset: `tidemark.toml` in the working
    directory, if it is there."""
    data_dir: Path = Path("./tidemark-data")
    """Folder with the log, the metadata and the locks; made when missing."""
    wal: Annotated[str, AfterValidator(checked_wal)] = ""
    """Where the log is: `kafka://HOST[:PORT],.../PREFIX?replication=3&min_isr=2`; see
    [the log in Kafka](#the-log-in-kafka). Empty: in segment files in `data_dir`."""
    listen: str = "127.0.0.1:19531"
    """HOST:PORT to listen on; port 0: a free one. Reached by other machines, it needs `tls_ca`."""
    advertise: str = ""
    """HOST or HOST:PORT that clients are given to connect to this process; without PORT, the port
    listened on. Empty: the address listened on; with a wildcard such as 0.0.0.0, this machine's
    only outside address."""

    meta: Annotated[str, AfterValidator(checked_meta)] = ""
    """Where the metadata is: `etcd://[USER@]HOST[:PORT],.../PREFIX`. Empty: SQLite in the data
    folder. It is chosen at the first start on a data folder."""
    meta_password_file: Path | None = None
    """File with the password of the user in `meta`; read at each login."""
    meta_tls_ca: Path | None = None
    """PEM file with the authorities of etcd's certificates; with it, or with the next two, etcd is
    spoken to with TLS."""
    meta_tls_cert: Path | None = None
    """PEM file with a certificate to show to etcd, if it asks for one."""
    meta_tls_key: Path | None = None
    """PEM file with the private key of `meta_tls_cert`."""
    milvus_root: Annotated[str, Field(pattern=r"^([\w.-]+(/[\w.-]+)*)?$", max_length=100)] = ""
    """`etcd.rootPath` of Milvus's clients, such as `by-dev`: with `meta`, the process is announced
    there [as they look for it](#milvuss-discovery). Empty: it is not."""

    tls_cert: Path | None = None
    """PEM file with the certificate of this process and its chain; with it, every port speaks TLS.
    All three files may be replaced while it runs."""
    tls_key: Path | None = None
    """PEM file with the private key of `tls_cert`, without a password."""
    tls_ca: Path | None = None
    """PEM file with authorities: clients must show a certificate that one of them signed, and other
    processes of the cluster are trusted by it. Unset: clients need none."""
    insecure: bool = False
    """Let other machines connect without TLS or without certificates, and do everything."""
    auth: Annotated[str, Field(pattern="^(off|on)$")] = "off"
    """`on`: calls need a proof of who makes them, a token or a certificate of a user, and grants;
    see [users](#users-roles-and-tokens). The same for all processes of a cluster."""
    auth_bootstrap: Path | None = None
    """TOML file with first users, read when `auth` is on and nobody may administer the broker."""
    jwt_jwks: Annotated[str, AfterValidator(checked_key_place)] = ""
    """File or https URL with the public keys (a JSON Web Key Set) of an identity provider whose
    [JWTs](#jwts-of-an-identity-provider) prove who calls. Empty: JWTs are refused."""
    jwt_issuer: str = ""
    """The issuer (`iss`) that JWTs must name."""
    jwt_audience: str = ""
    """The audience (`aud`) that JWTs must name: this broker, as the provider calls it."""
    jwt_user_claim: Annotated[str, Field(min_length=1)] = "sub"
    """The claim with the user's name, which gets `jwt:` before it; `a.b` is b in the object a."""
    jwt_roles_claim: Annotated[str, Field(min_length=1)] = "tidemark_roles"
    """The claim with the user's roles: a list, or a text with spaces between."""
    jwt_algorithms: Annotated[str, AfterValidator(checked_algorithms)] = ",".join(ALGORITHMS)
    """How JWTs may be signed, with commas between."""
    jwt_refresh_s: Annotated[float, Field(ge=1, le=3600)] = 60.0
    """How often keys behind a URL are read; a withdrawn key is good for as long, and 6 s more."""

    cluster: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$", max_length=64)] = "by-dev"
    """Name of the cluster, the first part of every pchannel name; fixed for a data folder."""
    pchannels: Annotated[int, Field(gt=0, le=PCHANNELS_MAX)] = 16
    """Number of pchannels, each with a log of its own. It can grow, never shrink."""
    streaming: bool = True
    """False: a new cluster starts read-only and takes no appends until `tidemark streaming
    enable`. Has no effect on an existing cluster."""
    node_id: Positive = 1
    """ID of a node process; with `nodes`, the ID of the first one."""
    nodes: Annotated[int, Field(ge=0, le=64)] = 0
    """Number of node processes that `tidemark serve` starts and restarts; 0: one process does
    everything."""
    coordinator: str = ""
    """HOST:PORT of the coordinator of a node process; with commas between them, of all that may
    lead. Empty: a node finds them in `meta`."""
    leader_lease_s: Annotated[float, Field(ge=4, le=300)] = 5.0
    """Seconds without a sign of the leading coordinator after which one that stands by takes over.
    A dead process is followed at once; this is for silent ones. The leader answers nobody after
    half of it."""
    node_lease_s: Annotated[float, Field(ge=0.2, le=300)] = 5.0
    """Seconds without a heartbeat after which a node stops writing and loses its channels. A dead
    process is noticed at once; this is for silent ones, so make it longer than a restart of the
    coordinator and than the pauses of a busy machine."""
    coordinator_wait_s: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that a starting node waits for its coordinator before it exits with an error."""

    expected_nodes: NotNegative = 0
    """Number of nodes that a starting coordinator waits for, up to a minute, before it assigns
    channels; 0: unknown."""
    gather_grace_s: Annotated[float, Field(ge=0)] = 2.0
    """Seconds that a starting coordinator waits after the first node, unless all former owners are
    back earlier; so that the first node does not get every channel."""
    node_lost_grace_s: Annotated[float, Field(ge=0)] = 0.0
    """Seconds that a lost node has to return before its channels are assigned to others."""

    balance_policy: Annotated[str, Field(pattern="^(vchannelFair|pchannel_count_fair)$")] = (
        "vchannelFair"
    )
    """How channels are spread over nodes: by their vchannels, or by the number of pchannels."""
    allow_rebalance: bool = True
    """False: a channel moves only when its node is lost, stops or is frozen."""
    balance_interval_s: Annotated[float, Field(gt=0)] = 60.0
    """Seconds between two runs of the balancer."""
    min_rebalance_interval_s: Annotated[float, Field(ge=0)] = 300.0
    """Seconds before the balancer moves the same channel again; each move is a short pause."""
    rebalance_lag_ms_max: NotNegative = 1_000
    """The balancer moves no channel that its next owner would have to recover for longer than this
    many milliseconds of log."""

    message_bytes_max: Positive = 8 * MIB
    """Bytes of a message; a larger one is refused as UNRECOVERABLE, and its stream continues."""
    frame_bytes_max: Positive = 16 * MIB
    """Bytes of a gRPC frame; a larger one is refused before memory is allocated for it."""
    produce_inflight_bytes_max: Positive = 32 * MIB
    """Unacknowledged bytes of a Produce or Append stream; beyond it the stream is not read."""
    consume_credit_bytes: Positive = 1 * MIB
    """Bytes fetched for a consumer ahead of what has been sent to it."""
    connections_max: Positive = 4096
    """Connections of a process; more are refused."""
    idle_peer_s: Annotated[float, Field(gt=0)] = 15.0
    """Seconds after which a peer is disconnected that stalls in the handshake or within a frame."""

    node_acks: bool = True
    """A broadcast with `ack_sync_up` is acknowledged on a vchannel when its node has applied the
    copy. False: only when a consumer acknowledges it."""

    callbacks: str = ""
    """MODULE:NAME of a mapping from message type to an async callback. The coordinator calls it
    when a broadcast of that type is on every vchannel, before its keys are released."""

    require_collection: bool = False
    """Refuse rows for a vchannel on which no CreateCollection message created a collection."""

    storage_version: Annotated[int, Field(ge=0, le=3)] = 2
    """The `storage_version` of the CreateSegment messages of collections that Milvus clients
    create: 2 packed files, as Milvus 2.6 writes; 3 files with a manifest; 0 the older binlogs."""
    delete_segments: bool = False
    """True: deletes get segments, too (level L0, partition -1), as this broker did before; Milvus's
    log creates none."""

    tick_interval_ms: Positive = 200
    """Milliseconds between two time ticks of a pchannel."""
    soft_tick_interval_ms: Positive = 500
    """Milliseconds between two time ticks of the whole cluster; each goes to every watcher."""
    silent_pchannel_s: Annotated[float, Field(gt=0)] = 10.0
    """Seconds after which a pchannel without new ticks no longer holds back the cluster's tick."""
    tail_bytes_max: Positive = 64 * MIB
    """Bytes of newest records kept in memory for each pchannel; older ones are read from files."""
    tail_total_bytes_max: Positive = 256 * MIB
    """Bytes of newest records kept in memory for all pchannels of a process. It keeps less, but at
    least half, where the process would otherwise exceed this and 100 MB."""
    tail_age_s: Annotated[float, Field(gt=0)] = 30.0
    """Seconds that the newest records are kept in memory."""

    barrier_wait_ms_max: Annotated[int, Field(ge=0, le=600_000)] = 10_000
    """Milliseconds that an append waits until the oracle has passed its barrier tick; a tick
    further ahead is refused at once."""

    open_txns_max: Positive = 1024
    """Open transactions of a pchannel; one more is refused until another has ended."""
    txn_bytes_max: Positive = 32 * MIB
    """Bytes of a transaction; readers get it in one piece, so each of them must hold it."""
    open_txn_bytes_max: Positive = 128 * MIB
    """Bytes of all open transactions of a pchannel; each of its readers may have to hold them."""
    txn_age_ms_max: Positive = 600_000
    """Milliseconds after which a transaction is rolled back, whatever its keepalive: an open one
    holds back retention and lengthens recovery."""
    txn_keepalive_ms: Positive = 10_000
    """Keepalive, in milliseconds, of a transaction that asks for none: it expires this long after
    its newest message."""
    txn_keepalive_ms_max: Positive = 600_000
    """The longest keepalive in milliseconds; a transaction that asks for more gets this."""
    stage_idle_ms: Positive = 600_000
    """Milliseconds without a message or a commit after which staged rows are rolled back."""
    stage_age_ms_max: Positive = 3_600_000
    """Milliseconds after which staged rows are rolled back in any case: until their batch is
    committed they hold back retention and lengthen recovery."""
    pause_consumption: bool = False
    """Start with consumption paused, until `tidemark consumption resume`; consumers may ignore
    it."""

    segment_bytes: Positive = 64 * MIB
    """Bytes of a segment file of the log; retention removes whole files."""
    retention_bytes: NotNegative = 0
    """Bytes kept of each pchannel; older segments are removed. 0: keep everything."""
    retention_ms: NotNegative = 0
    """Milliseconds that messages are kept; segments with only older ones are removed. 0: keep
    everything."""
    reserve_bytes: NotNegative = 96 * MIB
    """Bytes of disk kept for what frees space, once less than 16 times as much is free; at most an
    eighth of the disk. Messages are refused when a quarter of it is left. Give it more than
    `segment_bytes` and one MiB for each pchannel. 0: none."""
    disk_warn_percent: Percent = 85
    """`health` warns when so much of the disk is used and less than 20 GiB are free. 100: never."""
    disk_slow_percent: Percent = 95
    """Appends are slowed, from 16 MiB/s down to 512 KiB/s in all, when so much of the disk is used
    and less than 4 GiB are free. 100: never."""
    disk_refuse_percent: Percent = 98
    """Appends are refused when so much of the disk is used and less than 1 GiB is free; reads,
    drops and purges go on. 100: never."""
    memory_bytes_max: NotNegative = 0
    """Memory of this process, of which the next three are shares. 0: what the machine or the
    container has."""
    memory_warn_percent: Percent = 80
    """`health` warns when the process uses so much of its memory. 100: never."""
    memory_slow_percent: Percent = 90
    """Appends are slowed when the process uses so much of its memory. 100: never."""
    memory_refuse_percent: Percent = 95
    """Appends are refused when the process uses so much of its memory; reads, drops and purges go
    on. 100: never."""
    limits: Annotated[str, AfterValidator(checked_limits)] = ""
    """Limits of collections and identities, as `collection:NAME in_bytes=1MiB storage=9GiB; ...`;
    see [limits](#limits-of-collections-and-identities). Empty: none."""
    hold_bytes_max: NotNegative = 1024 * MIB
    """Bytes of each pchannel that a named cursor, or an open reader, holds back from retention; one
    that needs more is passed: it loses what retention removes. 0: they hold back nothing."""
    hold_s_max: Positive = 7 * 86_400
    """Seconds after its last commit in which a named cursor holds back anything."""
    retention_check_s: Annotated[float, Field(gt=0)] = 10.0
    """Seconds between two checks for segments that retention may remove."""
    compaction_dirty_percent: Annotated[int, Field(ge=1, le=100)] = 50
    """A compacted vchannel is compacted when so much of it came since the last time: less gives
    space back sooner, and rewrites each message more often."""
    compaction_min_bytes: Annotated[int, Field(gt=0)] = 256 * 1024
    """A vchannel is not compacted for less than so many new bytes."""
    compaction_map_bytes: Annotated[int, Field(ge=1024 * 1024)] = 64 * 1024 * 1024
    """Memory of a node for the keys of one pass, about 180 bytes each. More keys: more passes."""
    snapshot_period_s: Annotated[float, Field(gt=0)] = 10.0
    """Seconds between two snapshots of a pchannel, from which a restart recovers."""
    snapshot_records: Positive = 100
    """Records after which a snapshot is saved earlier."""
    skip_damage: bool = False
    """Open a log with a damaged record in its middle and skip it, instead of refusing to start."""

    drain_s: Annotated[float, Field(gt=0)] = 4.0
    """Seconds that a stop waits for work in progress; a stop by SIGTERM takes at most 5 s."""
    allow_chaos: bool = False
    """Let everyone who reaches the port kill single actors, to practise failures."""
    http_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """Port of /healthz, /readyz and /metrics over HTTP; 0 takes a free one. Unset: none."""
    http_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Host that this port listens on. Who reaches it may read metrics, unless `auth` is on."""
    audit_data: bool = False
    """Record access to data in the audit, too: one line for each stream, at its end. See
    [audit](#audit)."""
    audit_bytes_max: Annotated[int, Field(ge=64 * 1024)] = 16 * MIB
    """Bytes of a file of the audit; then the next one begins."""
    audit_files_max: Annotated[int, Field(ge=2, le=1000)] = 8
    """Files of the audit of each process; then the oldest one is removed."""
    log_level: Annotated[str, Field(pattern=LEVELS)] = "warning"
    """Level of all loggers; `warning,broker.node=debug` sets single ones apart."""
    log_format: Annotated[str, Field(pattern="^(console|json)$")] = "console"
    """`console`: for people, in colours on a terminal; `json`: one object per line."""

    @field_validator("storage_version")
    @classmethod
    def _is_storage_version(cls, value: int) -> int:
        if value == 1:
            raise ValueError("1 is no storage version of Milvus; use 0, 2 or 3")
        return value

    @field_validator("listen")
    @classmethod
    def _is_host_and_port(cls, value: str) -> str:
        if value:
            split_address(value)
        return value

    @field_validator("coordinator")
    @classmethod
    def _are_addresses(cls, value: str) -> str:
        return ",".join(split_addresses(value)) if value else value

    @model_validator(mode="after")
    def _has_whole_meta(self) -> Self:
        names = ("password_file", "tls_ca", "tls_cert", "tls_key")
        given = [it for it in (*[f"meta_{it}" for it in names], "milvus_root") if getattr(self, it)]
        if given and not self.meta:
            raise ValueError(f"{given[0]} is set without meta, the URL of etcd")
        if not self.meta:
            return self
        user = etcd_place(self.meta).user
        if bool(user) != (self.meta_password_file is not None):
            raise ValueError(
                f"meta names user {user}, and meta_password_file is not set"
                if user
                else "meta_password_file is set, and meta names no user: etcd://USER@HOST/PREFIX"
            )
        if (self.meta_tls_cert is None) != (self.meta_tls_key is None):
            raise ValueError("meta_tls_cert and meta_tls_key are set together or not at all")
        return self

    @model_validator(mode="after")
    def _has_whole_tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            given, missing = ("tls_cert", "tls_key") if self.tls_cert else ("tls_key", "tls_cert")
            raise ValueError(f"{given} is set without {missing}; TLS needs both")
        if self.tls_ca is not None and self.tls_cert is None:
            raise ValueError("tls_ca is set without tls_cert and tls_key; set them, too")
        return self

    @model_validator(mode="after")
    def _has_whole_jwt(self) -> Self:
        needed = {name: getattr(self, name) for name in ("jwt_jwks", "jwt_issuer", "jwt_audience")}
        given = [name for name, it in needed.items() if it]
        if given and (missing := [name for name, it in needed.items() if not it]):
            raise ValueError(f"{given[0]} is set without {' and '.join(missing)}; JWTs need them")
        if given and self.auth != "on":
            raise ValueError("jwt_jwks is set while auth is off; set auth to 'on', too")
        return self

    @field_validator("advertise")
    @classmethod
    def _may_be_connected_to(cls, value: str) -> str:
        if value:
            split_advertised(value)
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
        named = init_settings().get("config") or env_settings().get("config")
        in_file = _of_file(Path(named) if named else None)
        return init_settings, env_settings, InitSettingsSource(settings_cls, in_file)


class GivenSettings(Settings):
    """The same rules for given values alone: no environment, no file."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def _of_file(file: Path | None) -> dict[str, Any]:
    """The settings of a server in the file, whose other parts are checked."""
    content = read_config(file)
    where = file or CONFIG_FILE
    if "config" in content:
        raise BadConfig(f"'config' in {where} is not a setting: a file cannot name another one")
    client_config(content.pop(CLIENT_TABLE, {}), f"[{CLIENT_TABLE}] of {where}")
    return content
