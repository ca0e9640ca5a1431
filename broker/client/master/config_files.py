"""Reads YAML files of configuration as changes, each with its file and line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from broker.client.errors import TidemarkError
from broker.core.live_config.config_keys import SEPARATOR
from broker.model.master.live_config import CHANGES_MAX, ConfigChange

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Above what the cluster stores, so that a wrong file is not read to its end."""
DEPTH_MAX: Final = 50
NODES_MAX: Final = 10_000
"""Elements of one value: it has at most 64 KiB."""


class BadConfigFile(TidemarkError):
    """A file of configuration cannot be read; nothing of it was applied."""


def changes_of(path: Path) -> list[ConfigChange]:
    """What the file, or every `*.yaml` of the folder in order of name, sets. BadConfigFile."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if not files:
        raise BadConfigFile(f"{path} holds no file *.yaml; name a file, or a folder with some")
    changes = [change for file in files for change in _changes(file)]
    if not changes:
        raise BadConfigFile(f"{path} sets nothing; write lines such as retention_ms: 86400000")
    return changes


def _changes(file: Path) -> list[ConfigChange]:
    try:
        # The nodes, not the values: they know their lines, and no value takes more than its text.
        root = yaml.compose(_text(file), Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise BadConfigFile(_sentence(file, error)) from None
    except RecursionError:
        raise BadConfigFile(f"{file}: is nested too deeply; at most {DEPTH_MAX} levels") from None
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise BadConfigFile(f"{_place(file, root)}: a file must be a map of keys to values")
    found: list[ConfigChange] = []
    for key, value, origin in _leaves(file, root, "", 1):
        if len(found) == CHANGES_MAX:
            raise BadConfigFile(
                f"{origin}: more than {CHANGES_MAX:,} keys; the cluster keeps fewer"
            )
        found.append(ConfigChange(key, value, origin=origin))
    return found


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise BadConfigFile(f"{file} has more than {FILE_BYTES_MAX:,} bytes; split it")
        return data.decode()
    except OSError as error:
        raise BadConfigFile(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadConfigFile(f"{file} is not UTF-8 text: {error.reason}") from None


def _leaves(
    file: Path, found: yaml.MappingNode, above: str, depth: int
) -> Iterator[tuple[str, str, str]]:
    """Each key with its value and its place; nested maps are paths."""
    for key, value in found.value:
        place = _place(file, key)
        if not isinstance(key, yaml.ScalarNode):
            raise BadConfigFile(f"{place}: a key must be text, not a list or a map")
        if key.tag == "tag:yaml.org,2002:merge":
            raise BadConfigFile(f"{place}: '<<' is not supported; write the keys out")
        if depth > DEPTH_MAX:
            raise BadConfigFile(f"{place}: nested too deeply; at most {DEPTH_MAX} levels")
        name = f"{above}{key.value}"
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from _leaves(file, value, name + SEPARATOR, depth + 1)
        else:
            yield name, _value(file, value), place


def _value(file: Path, found: yaml.Node) -> str:
    """The value as text: scalars as they are written, null as "", the rest as JSON."""
    if isinstance(found, yaml.ScalarNode):
        return "" if found.tag == "tag:yaml.org,2002:null" else str(found.value)
    _check_size(file, found)
    loader = yaml.SafeLoader("")
    try:
        value = loader.construct_document(found)
        return json.dumps(value, ensure_ascii=False, default=str)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise BadConfigFile(f"{_place(file, found)}: cannot be stored as JSON: {error}") from None
    finally:
        loader.dispose()


def _check_size(file: Path, found: yaml.Node) -> None:
    """Aliases may make a small file a huge value, or a list that contains itself."""
    waiting, seen = [(found, 1)], 0
    while waiting:
        node, depth = waiting.pop()
        seen += 1
        if seen > NODES_MAX or depth > DEPTH_MAX:
            raise BadConfigFile(
                f"{_place(file, found)}: the value has more than {NODES_MAX:,} elements or"
                f" {DEPTH_MAX} levels"
            )
        if isinstance(node, yaml.MappingNode):
            waiting += [(it, depth + 1) for pair in node.value for it in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(it, depth + 1) for it in node.value]


def _sentence(file: Path, error: yaml.YAMLError) -> str:
    mark: Any = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"{file}:{mark.line + 1}: {problem}" if mark is not None else f"{file}: {problem}"


def _place(file: Path, node: yaml.Node) -> str:
    return f"{file}:{node.start_mark.line + 1}"
