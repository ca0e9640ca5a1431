"""Parts that tests need beside Python: where one is missing they are skipped, but not in CI.

`.ci/run` installs all of them. A mirror that is away, or a changed image, would otherwise take
hundreds of tests out of the gate, and nobody would see it.
"""

import os
from collections.abc import Mapping
from typing import NoReturn

import pytest


def missing_part(what: str, environment: Mapping[str, str] = os.environ) -> NoReturn:
    """Skip the test that needs this; with CI=true fail it. `what` says what is missing, and why."""
    if environment.get("CI") == "true":
        pytest.fail(f"{what}; CI=true, so nothing is skipped for that: see .ci/run", pytrace=False)
    pytest.skip(what)
