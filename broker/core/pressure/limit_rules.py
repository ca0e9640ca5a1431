"""The limits of collections and identities, as an operator writes them in the setting `limits`.

    collection:clicks in_bytes=1MiB in_messages=5000 storage=10GiB; identity:* streams=50

A rule is a subject and its limits; rules are separated by `;` or lines. Bytes may have a unit, KiB
to TiB. A name that ends in `*` stands for each of the names that begin so: every one has such a
limit for itself. The rule with the longest name that fits is the only one that holds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Final

from broker.core.naming import collection_id_of

RULES_MAX: Final = 1000
AMOUNT_MAX: Final = 1 << 50


class BadLimits(ValueError):
    """A text that states no limits; the error says which part is wrong, and what to write."""


class Scope(StrEnum):
    """What a limit is of."""

    COLLECTION = "collection"
    IDENTITY = "identity"


@dataclass(frozen=True, slots=True)
class Subject:
    """A collection by its name, or an identity."""

    scope: Scope
    name: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one subject in one process; 0: no limit. Bytes and messages are a second's.

    `storage`: bytes that a collection may take in the log, over all processes. `streams`: of
    appends and of reads that an identity has open at one time. `connections`: those of a client's
    certificate, or of a host without one, since a token comes later. `transactions`: those that an
    identity began here and that are open at one time. `calls`: those that it begins in a second,
    streams included.
    """

    in_bytes: int = 0
    in_messages: int = 0
    out_bytes: int = 0
    out_messages: int = 0
    storage: int = 0
    streams: int = 0
    connections: int = 0
    transactions: int = 0
    calls: int = 0


UNLIMITED: Final = Limits()
_NAMES: Final = tuple(it.name for it in fields(Limits))
_OF_IDENTITIES: Final = frozenset({"streams", "connections", "transactions", "calls"})
_IN_BYTES: Final = frozenset({"in_bytes", "out_bytes", "storage"})
_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True, slots=True)
class LimitRules:
    """All rules. False when there is none."""

    rules: Mapping[Subject, Limits] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def of(self, subject: Subject) -> Limits:
        """The limits of a subject."""
        found = self.rules.get(subject)
        if found is not None:
            return found
        for end in range(len(subject.name), -1, -1):
            found = self.rules.get(replace(subject, name=subject.name[:end] + "*"))
            if found is not None:
                return found
        return UNLIMITED

    @property
    def storage(self) -> Mapping[Subject, Limits]:
        """The rules that limit what is stored."""
        return {subject: it for subject, it in self.rules.items() if it.storage}

    def storage_of(self, collection: str) -> int:
        """How many bytes a collection of this name may store; 0: no limit."""
        return self.of(Subject(Scope.COLLECTION, collection)).storage


def name_without_collection(vchannel: str) -> str:
    """What a rule names that limits a vchannel of no collection that the catalog has."""
    number = collection_id_of(vchannel)
    return vchannel if number is None else str(number)


def parsed_limits(text: str) -> LimitRules:
    """The rules that a text states. Raises BadLimits."""
    rules: dict[Subject, Limits] = {}
    for rule in _rules(text):
        named, *limits = rule.split()
        subject = _subject(named)
        if subject in rules:
            raise BadLimits(f"{named} has two rules; write its limits in one")
        rules[subject] = _limits(named, subject.scope, limits)
    if len(rules) > RULES_MAX:
        raise BadLimits(f"{len(rules)} rules are too many; write at most {RULES_MAX}")
    return LimitRules(rules)


def checked_limits(text: str) -> str:
    """The text itself. Raises BadLimits unless it states limits, or nothing."""
    parsed_limits(text)
    return text


def _rules(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from (it for it in line.split(";") if it.strip())


def _subject(named: str) -> Subject:
    scope, mark, name = named.partition(":")
    if not mark or scope not in tuple(Scope):
        raise BadLimits(f"{named!r} is no subject; write collection:NAME or identity:NAME")
    if not name or "*" in name[:-1]:
        raise BadLimits(f"{named!r} names nothing; write a name, or the beginning of names and '*'")
    return Subject(Scope(scope), name)


def _limits(named: str, scope: Scope, given: list[str]) -> Limits:
    found: dict[str, int] = {}
    for each in given:
        name, _, amount = each.partition("=")
        if name not in _NAMES or name in found:
            known = ", ".join(_NAMES)
            raise BadLimits(
                f"{named}: {each!r} is no limit; write each once, as NAME=NUMBER: {known}"
            )
        if name in _OF_IDENTITIES and scope is not Scope.IDENTITY:
            raise BadLimits(f"{named}: {name} is a limit of identities; write identity:NAME")
        if name == "storage" and scope is not Scope.COLLECTION:
            raise BadLimits(
                f"{named}: storage is a limit of collections, because the log does not keep who"
                " wrote a message; write collection:NAME"
            )
        found[name] = _amount(named, name, amount, each)
    if not found:
        raise BadLimits(f"{named} has no limits; write some, such as in_bytes=1048576")
    return Limits(**found)


def _amount(named: str, name: str, amount: str, given: str) -> int:
    unit = amount[-3:] if name in _IN_BYTES and amount[-3:] in _UNITS else ""
    digits = amount.removesuffix(unit)
    # Short: Python refuses to convert thousands of digits.
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 20
    found = int(digits) * _UNITS.get(unit, 1) if is_number else 0
    if not 0 < found <= AMOUNT_MAX:
        units = f" (with {', '.join(_UNITS)} if you like)" if name in _IN_BYTES else ""
        raise BadLimits(f"{named}: {given!r} needs a number from 1 to {AMOUNT_MAX}{units}")
    return found
