"""What an operator or a client of the configuration writes: TOML, YAML, limits, single values."""

import tempfile
from pathlib import Path

from broker.client.master.config_files import BadConfigFile, changes_of
from broker.config import changed_settings
from broker.config_file import BadConfig, client_config, is_server, read_config
from broker.core.pressure.limit_rules import BadLimits, Scope, Subject, parsed_limits
from broker.process_settings import GivenSettings, Settings
from tests.fuzz.choice import numbered, read_by_first_byte

_FOLDER = tempfile.TemporaryDirectory(prefix="tidemark-fuzz-")
_SETTINGS: Settings = GivenSettings()
_NAMES = sorted(Settings.model_fields)


def check(data: bytes) -> None:
    """A sentence in BadConfig, BadLimits or BadConfigFile, or settings that can be used."""
    read_by_first_byte(data, READERS, (BadConfig, BadLimits, BadConfigFile))


def _toml(data: bytes) -> None:
    content = read_config(_file("it.toml", data))
    client_config(content.pop("client", {}), "[client]")
    changed_settings(_SETTINGS, {name: content[name] for name in content if name in _NAMES})


def _yaml(data: bytes) -> None:
    changes_of(_file("it.yaml", data))


def _limits(data: bytes) -> None:
    rules = parsed_limits(data.decode("utf-8", "replace"))
    rules.of(Subject(Scope.COLLECTION, "clicks"))


def _one_setting(data: bytes) -> None:
    if data:
        text = data[1:].decode("utf-8", "replace")
        changed_settings(_SETTINGS, {_NAMES[data[0] % len(_NAMES)]: text})


def _address(data: bytes) -> None:
    is_server(data.decode("utf-8", "replace"))


def _file(name: str, data: bytes) -> Path:
    path = Path(_FOLDER.name, name)
    path.write_bytes(data)
    return path


READERS = (_toml, _yaml, _limits, _one_setting, _address)

INPUT_BYTES_MAX = 8192
"""More digits than Python converts."""
SEEDS = numbered(
    (
        b'listen = "127.0.0.1:1"\nidle_peer_s = 5\n[client]\nserver = "h:1"\nappend_s = 3.5\n',
        b"retention_ms: 5\nnode:\n  idle: [1, 2]\n  a.b: text\n",
        b"collection:clicks in_bytes=1048576; identity:* out_bytes=10 streams=50",
        b"\x055",
        b"[::1]:19530",
        b"identity:me streams=" + b"9" * 5000,
        b"host:" + b"9" * 5000,
    ),
    len(READERS),
)
