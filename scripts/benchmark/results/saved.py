"""Reads the results that a run wrote."""

import json
from pathlib import Path

from benchmark.results.figures import BadResults, Series, from_json


def loaded(path: Path) -> list[Series]:
    """The results in a file. Raises BadResults with its name."""
    try:
        return from_json(json.loads(path.read_text()))
    except OSError as error:
        raise BadResults(f"cannot read {path}: {error.strerror}") from error
    except BadResults as error:
        raise BadResults(f"{path}: {error}") from error
    except ValueError as error:
        raise BadResults(f"{path} is not JSON: {error}; name the bench.json of a run") from error
