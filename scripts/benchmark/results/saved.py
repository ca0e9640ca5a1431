"""Reads the results that a run wrote, and says what run it was."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmark.results.figures import BadResults, Series, from_json


def loaded(path: Path) -> list[Series]:
    """The results in a file. Raises BadResults with its name."""
    return loaded_with_about(path)[0]


def loaded_with_about(path: Path) -> tuple[list[Series], Mapping[str, Any]]:
    """The results in a file, and everything else that it says. Raises BadResults with its name."""
    try:
        made = json.loads(path.read_text())
        return from_json(made), made
    except OSError as error:
        raise BadResults(f"cannot read {path}: {error.strerror}") from error
    except BadResults as error:
        raise BadResults(f"{path}: {error}") from error
    except ValueError as error:
        raise BadResults(f"{path} is not JSON: {error}; name the bench.json of a run") from error


def told_of(about: Mapping[str, Any]) -> str:
    """When the run was, how much it measured, and on what: one line."""
    machine = about.get("machine") or {}
    rounds, messages = about.get("rounds", 0), about.get("messages", 0)
    return (
        f"{str(about.get('made', ''))[:16].replace('T', ' ')} UTC, rounds: {rounds}, messages of "
        f"each subject and round: {messages:,}, CPUs: {machine.get('cpus')}, "
        f"Python {machine.get('python')}"
    )
