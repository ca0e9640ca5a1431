"""`--filter FIELD=VALUE`: which messages of a batch are wanted."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_

from broker.cli.lines.message_columns import Column, UnknownField, column
from broker.client import MessageBatch

Mask = list[bool]
Filter = Callable[[MessageBatch], Mask]


class BadFilter(Exception):
    """A filter that cannot be read; the text says how to write it."""


def message_filter(expressions: Sequence[str]) -> Filter | None:
    """Whether each message of a batch fulfils every expression; None for no expression.

    `FIELD=VALUE` is fulfilled by exactly this value, `FIELD=PREFIX*` by what begins with it, and
    `FIELD!=...` by everything else. A message without the field fulfils only `!=`. A `*` that ends
    a value literally is written `\\*`. Raises BadFilter.
    """
    conditions = [_condition(it) for it in expressions]
    if not conditions:
        return None
    if len(conditions) == 1:
        return conditions[0]
    return lambda batch: [reduce(and_, each) for each in zip(*(it(batch) for it in conditions))]  # noqa: B905 - one batch has one length


def _condition(expression: str) -> Filter:
    name, equals, value = expression.partition("=")
    negated = name.endswith("!")
    name = name.removesuffix("!").strip()
    if not equals or not name:
        raise BadFilter(
            f"{expression!r} is not a filter; write FIELD=VALUE, FIELD=PREFIX* or FIELD!=VALUE"
        )
    try:
        values = column(name)
    except UnknownField as error:
        raise BadFilter(str(error)) from None
    if value.endswith("\\*"):
        return _equal(values, value[:-2] + "*", negated)
    if value.endswith("*"):
        return _begins(values, value[:-1], negated)
    return _equal(values, value, negated)


def _equal(values: Column, wanted: str, negated: bool) -> Filter:
    # A shell passes bytes that are no text as surrogates.
    sought = wanted.encode(errors="surrogateescape")
    return lambda batch: [(it == sought) is not negated for it in values(batch)]


def _begins(values: Column, prefix: str, negated: bool) -> Filter:
    sought = prefix.encode(errors="surrogateescape")
    return lambda batch: [
        (it is not None and it.startswith(sought)) is not negated for it in values(batch)
    ]
