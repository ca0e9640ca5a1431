"""Checks a request of changes as a whole: all of them can be applied, or none is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from broker.core.live_config.config_keys import (
    BadKey,
    config_key,
    is_setting,
    meant_setting,
    shown_key,
)
from broker.model.master.live_config import (
    CHANGES_MAX,
    ENTRIES_MAX,
    TOTAL_BYTES_MAX,
    VALUE_BYTES_MAX,
    ConfigChange,
    ConfigEntry,
)


class Wrong(Enum):
    """The kind of an error; the order is that of severity."""

    BAD = "bad"
    RESTART = "restart"
    MISSING = "missing"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a change cannot be applied: what is wrong, with which value, what to do."""

    kind: Wrong
    cause: str


class Unchangeable(Exception):
    """Nothing was changed. `kind`: of the gravest of `problems`, which the text names all."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        order = list(Wrong)
        self.kind = min((it.kind for it in problems), key=order.index)
        self.problems = tuple(problems)
        super().__init__("; ".join([it.cause for it in problems]))


@dataclass(frozen=True, slots=True)
class SettingRules:
    """`known`: whether a setting has this name. `problem`: why it cannot have this value."""

    known: Callable[[str], bool]
    problem: Callable[[str, str], Problem | None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write: values by key, and keys to delete. `settings`: whether one of them changes."""

    puts: Mapping[str, str]
    deletes: tuple[str, ...]

    @property
    def settings(self) -> bool:
        """Whether a setting changes."""
        return any(map(is_setting, [*self.puts, *self.deletes]))


def plan(
    entries: Mapping[str, ConfigEntry], changes: Sequence[ConfigChange], rules: SettingRules
) -> Plan:
    """The writes of these changes, every one checked. Raises Unchangeable with all that is wrong.

    A value that an entry has already is written again: its revision says who set it last.
    """
    if not changes or len(changes) > CHANGES_MAX:
        cause = f"the request has {len(changes):,} changes; send 1 to {CHANGES_MAX:,}"
        raise Unchangeable([Problem(Wrong.BAD, cause)])
    wrong: list[Problem] = []
    puts: dict[str, str] = {}
    deletes: list[str] = []
    origins: dict[str, str] = {}
    for change in changes:
        try:
            key = config_key(change.key)
        except BadKey as error:
            wrong.append(_at(change, Problem(Wrong.BAD, str(error))))
            continue
        found = _twice(key, origins) or _problem(entries.get(key), key, change, rules)
        origins.setdefault(key, change.origin)
        if found is not None:
            wrong.append(_at(change, found))
        elif change.value is None:
            deletes.append(key)
        else:
            puts[key] = change.value
    if not wrong:
        wrong = _beyond(entries, puts, deletes)
    if wrong:
        raise Unchangeable(wrong)
    return Plan(puts, tuple(deletes))


def _problem(
    entry: ConfigEntry | None, key: str, change: ConfigChange, rules: SettingRules
) -> Problem | None:
    if change.expected is not None:
        at = 0 if entry is None else entry.revision
        if at != change.expected:
            cause = (
                f"{shown_key(key)} is at revision {at}, not {change.expected}: somebody changed it;"
                " read it again"
            )
            return Problem(Wrong.CONFLICT, cause)
    if change.value is None:
        if entry is None:
            return Problem(Wrong.MISSING, f"{shown_key(key)} is not set, so there is nothing to do")
        return None
    if is_setting(key):
        return rules.problem(key, change.value)
    if rules.known(meant_setting(key)):
        cause = f"{shown_key(key)} is no setting; did you mean {meant_setting(key)}?"
        return Problem(Wrong.BAD, cause)
    size = len(change.value.encode())
    if size > VALUE_BYTES_MAX:
        cause = (
            f"the value of {shown_key(key)} has {size:,} bytes; the limit is {VALUE_BYTES_MAX:,}"
        )
        return Problem(Wrong.BAD, cause)
    return None


def _twice(key: str, origins: Mapping[str, str]) -> Problem | None:
    if key not in origins:
        return None
    before = f", first at {origins[key]}" if origins[key] else ""
    cause = f"{shown_key(key)} is given twice{before}; keep one of them"
    return Problem(Wrong.BAD, cause)


def _at(change: ConfigChange, problem: Problem) -> Problem:
    return Problem(problem.kind, f"{change.origin}: {problem.cause}") if change.origin else problem


def _beyond(
    entries: Mapping[str, ConfigEntry], puts: Mapping[str, str], deletes: Sequence[str]
) -> list[Problem]:
    after = {**{key: it.value for key, it in entries.items()}, **puts}
    for key in deletes:
        after.pop(key, None)
    size = sum([len(key.encode()) + len(value.encode()) for key, value in after.items()])
    if len(after) <= ENTRIES_MAX and size <= TOTAL_BYTES_MAX:
        return []
    cause = (
        f"the configuration would have {len(after):,} entries and {size:,} bytes; the limits are"
        f" {ENTRIES_MAX:,} and {TOTAL_BYTES_MAX:,}: delete some first"
    )
    return [Problem(Wrong.BAD, cause)]
