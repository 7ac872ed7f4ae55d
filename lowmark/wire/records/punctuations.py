"""Promises, punctuations and the ledger (DESIGN: words; Li 7.2; Ding 2004 for value bounds)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from lowmark.wire.records.json_fields import Fields, Json, canonical, integer, parse, text
from lowmark.wire.records.partials import Origin, decode_origin, origin_headers
from lowmark.wire.records.record import BadReason, Headers, RecordKind, Refused, WireRecord, sized
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER, INT64_MIN, time

__all__ = [
    "Account", "Bound", "Ending", "LaneLedger", "Promise", "Punctuation", "Taint", "decode_punctuation",
    "encode_punctuation",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bound:
    """`column < below`, or `column in values`; exactly one is given. If values combine several columns, `column` is
    the tuple of their names."""

    column: str | tuple[str, ...]
    below: int | None = None
    values: ValueSet | None = None

    def __post_init__(self) -> None:
        if (self.below is None) == (self.values is None):
            raise ValueError(f"a bound on {self.column} is either `below` or `values`")
        if isinstance(self.column, tuple) and (self.values is None or self.values.columns != len(self.column) > 1):
            raise ValueError(f"a bound on {self.column} needs values of so many columns")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,) if isinstance(self.column, str) else self.column

    def renamed(self, names: Mapping[str, str]) -> Bound | None:
        """The same bound with columns renamed; None if one of them is not in `names`."""
        if not all(column in names for column in self.columns):
            return None
        named = tuple(names[column] for column in self.columns)
        return Bound(named[0] if isinstance(self.column, str) else named, self.below, self.values)


@dataclass(frozen=True, slots=True)
class Promise:
    """No later row of this lane satisfies all of these bounds. `last`: no row at all will follow."""

    bounds: tuple[Bound, ...]
    last: bool = False

    def below(self, column: str) -> int | None:
        """The frontier that this promise gives the column; None if it does not bound this column alone."""
        if self.last:
            return FOREVER
        if len(self.bounds) == 1 and self.bounds[0].column == column:
            return self.bounds[0].below
        return None


class Ending(Enum):
    NONE = "none"
    END = "end"  # a finite source: everything has been sent
    STOP = "stop"  # a live source: covered up to the promise; after it the stall rule decides


@dataclass(frozen=True, slots=True)
class Account:
    """The content of a granule that this promise closes, or (late tuples only) that an earlier promise closed."""

    granule: int
    here: int  # tuples sent to this partition
    everywhere: int  # tuples sent to all partitions
    late: int = 0
    given_up: int = 0


@dataclass(frozen=True, slots=True)
class Taint:
    """The sender's reasons against all granules from `start` up to `stop`, promised or not. Any of them may be
    affected, so the whole run is reported."""

    start: int
    stop: int
    reasons: tuple[str, ...]
    partial: bool = False  # operators' lanes: a window in the run began before its sources
    dropped: int = 0  # frames that the kernel dropped, anywhere in the run


@dataclass(frozen=True, slots=True)
class LaneLedger:
    """Cumulative counters of the epoch, and an account for each granule with content that the promise closes."""

    counters: dict[str, int] = field(default_factory=dict)
    accounts: tuple[Account, ...] = ()
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Punctuation:
    """The record that sends a promise and the ledger to one partition, after the data that they cover."""

    origin: Origin
    sequence: int
    promise: Promise
    ledger: LaneLedger
    ending: Ending = Ending.NONE
    start_ns: int | None = None  # the epoch is covered from this time on; None: finite sources


# In JSON a bound is {"column", "below"}, {"column", "in"} or, of several columns, {"columns", "in"} with an array for
# each value. An account or a taint is the array of its fields in order, without defaults at the end. Accounts are most
# of a punctuation: each takes about 24 bytes, and 4 µs to write and read. A binary form would save less than half of
# that time; the rest is making the object.
_ENDINGS = {ending.value: ending for ending in Ending}
_REASONS = frozenset(reason.value for reason in Reason)
_VALUES_BELOW = 1 << 160  # a Community ID is the widest


def encode_punctuation(punctuation: Punctuation) -> WireRecord:
    """Raises OversizeRecord beyond about 40,000 accounts. Senders promise in far smaller steps."""
    promise, ledger = punctuation.promise, punctuation.ledger
    value: dict[str, Json] = {
        "accounts": [_account(account) for account in ledger.accounts],
        "bounds": [_bound(bound) for bound in promise.bounds],
        "counters": ledger.counters,
        "ending": punctuation.ending.value,
        "last": promise.last,
    }
    if punctuation.start_ns is not None:
        value["start"] = time(punctuation.start_ns)
    if ledger.taints:
        value["taints"] = [_taint(taint) for taint in ledger.taints]
    headers = origin_headers(RecordKind.PUNCTUATION, punctuation.origin, punctuation.sequence)
    return sized(WireRecord(None, canonical(value), headers))


def _bound(bound: Bound) -> Json:
    if bound.values is not None and isinstance(bound.column, tuple):
        return {"columns": bound.column, "in": bound.values.tuples()}
    if bound.values is not None:
        return {"column": bound.column, "in": bound.values.integers()}
    return {"column": bound.column, "below": bound.below}


def _account(account: Account) -> Json:
    return _without_defaults([account.granule, account.here, account.everywhere, account.late, account.given_up])


def _taint(taint: Taint) -> Json:
    return _without_defaults([taint.start, taint.stop, taint.reasons, taint.partial, taint.dropped])


def _without_defaults(fields: list[Json]) -> Json:
    while len(fields) > 3 and not fields[-1]:
        fields.pop()
    return fields


def decode_punctuation(headers: Headers, value: bytes) -> Punctuation:
    origin, sequence = decode_origin(headers)
    fields = Fields(parse(value))
    accounts = tuple(_read_account(item) for item in fields.array("accounts"))
    bounds = tuple(_read_bound(item) for item in fields.array("bounds"))
    counters = Fields(fields.take("counters"))
    taints = tuple(_read_taint(item) for item in fields.array("taints")) if fields.has("taints") else ()
    counts = {text(name, "a counter's name"): counters.natural(name) for name in counters.names()}
    ledger = LaneLedger(counts, accounts, taints)
    ending = fields.choice("ending", _ENDINGS)
    promise = Promise(bounds, fields.flag("last"))
    start_ns = fields.attribute("start", Kind.TIME) if fields.has("start") else None
    fields.end()
    return Punctuation(origin, sequence, promise, ledger, ending, start_ns)


def _read_bound(value: Json) -> Bound:
    fields = Fields(value)
    if fields.has("columns"):
        columns = fields.texts("columns")
        if len(set(columns)) != len(columns) or len(columns) < 2:
            raise Refused(BadReason.VALUE, "`columns` are two names or more, each named once")
        bound = Bound(columns, values=ValueSet.of_tuples(_read_tuples(fields.array("in"), len(columns)), len(columns)))
    elif fields.has("in"):
        bound = Bound(fields.text("column"), values=ValueSet.of(map(_read_value, fields.array("in"))))
    else:
        bound = Bound(fields.text("column"), below=fields.integer("below"))
    fields.end()
    return bound


def _read_tuples(values: Sequence[Json], columns: int) -> Iterator[tuple[int, ...]]:
    for value in values:
        if not isinstance(value, list) or len(value) != columns:
            raise Refused(BadReason.VALUE, f"a value of {columns} columns is an array of {columns} integers")
        yield tuple(map(_read_value, value))


def _read_value(value: Json) -> int:
    return integer(value, "in", INT64_MIN, _VALUES_BELOW - 1)


def _read_account(value: Json) -> Account:
    if not isinstance(value, list) or not 3 <= len(value) <= 5:
        raise Refused(BadReason.VALUE, "an account is an array of 3 to 5 fields")
    granule = integer(value[0], "granule")
    here, everywhere, *rest = [integer(item, "a count of an account", 0) for item in value[1:]]
    late, given_up = (*rest, 0, 0)[:2]
    return Account(granule, here, everywhere, late, given_up)


def _read_taint(value: Json) -> Taint:
    if not isinstance(value, list) or not 3 <= len(value) <= 5:
        raise Refused(BadReason.VALUE, "a taint is an array of 3 to 5 fields")
    start, stop = integer(value[0], "start"), integer(value[1], "stop")
    partial = _flag(value[3] if len(value) > 3 else False)
    dropped = integer(value[4] if len(value) > 4 else 0, "dropped", 0)
    return Taint(start, stop, _read_reasons(value[2]), partial, dropped)


def _read_reasons(value: Json) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(text(item, "a reason") in _REASONS for item in value):
        raise Refused(BadReason.VALUE, f"the reasons against a granule are {', '.join(sorted(_REASONS))}")
    return tuple(text(item, "a reason") for item in value)


def _flag(value: Json) -> bool:
    if not isinstance(value, bool):
        raise Refused(BadReason.VALUE, "`partial` is true or false")
    return value
