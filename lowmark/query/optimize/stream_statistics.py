"""Known statistics of a query's data: they decide how the query runs, never what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lowmark.query.bind.relations import Packets, Side
from lowmark.query.parse import syntax as s

__all__ = ["UNKNOWN", "Expected", "UnknownInput", "check_names"]


_LEAST, _MOST = 1e-12, 1e12
"""Limits of rates, in rows a second. They keep everything computed from rates finite."""


class UnknownInput(Exception):
    """Statistics are given for an input that the query does not have: the message says which, and which there are."""


@dataclass(frozen=True, slots=True)
class Expected:
    """`rates`: rows a second, by name, of a join's input (after its conditions) or of a stream. `selectivities`: by two
    inputs of a join, the share of pairs within each other's windows that agree in what must be equal. `groups`: the
    most groups in a pane of an aggregate."""

    rates: Mapping[str, float] = field(default_factory=dict)
    selectivities: Mapping[frozenset[str], float] = field(default_factory=dict)
    groups: int | None = None
    written: Mapping[str, str] = field(default_factory=dict)  # names as they were given, by their folded form

    @classmethod
    def of(cls, rates: Mapping[str, float], selectivities: Mapping[str, float], groups: int | None = None) -> Expected:
        """Names ignore case; a pair is written `A,B`. ValueError says what is wrong."""
        pairs = {}
        for pair, share in selectivities.items():
            names = frozenset(name.strip().casefold() for name in pair.split(","))
            if len(names) != 2 or "" in names:
                raise ValueError(f"{pair!r} is no pair of inputs: write two names with a comma between, A,B")
            if not 0 < share <= 1:
                raise ValueError(f"the selectivity of {pair} is {share:g}; it is above 0 and at most 1")
            pairs[names] = share
        for name, rate in rates.items():
            if not _LEAST <= rate <= _MOST:
                raise ValueError(f"the rate of {name} is {rate:g} rows a second; it is from {_LEAST:g} to {_MOST:g}")
        if groups is not None and groups < 1:
            raise ValueError(f"groups is {groups}; it is a number above 0")
        written = {name.casefold(): name for name in rates}
        written |= {name.strip().casefold(): name.strip() for pair in selectivities for name in pair.split(",")}
        return cls({name.casefold(): rate for name, rate in rates.items()}, pairs, groups, written)

    def rate(self, side: Side) -> float | None:
        """The rate given for an input, else the sum of the rates of its streams."""
        own = self.rates.get(side.label.casefold())
        if own is not None:
            return own
        streams: list[float | None] = []
        for arm in side.relation.arms:
            bases = arm.base.streams if isinstance(arm.base, Packets) else ("",)
            streams += [self.rates.get(name.casefold()) for name in bases]
        known = [rate for rate in streams if rate is not None]
        return sum(known) if len(known) == len(streams) else None

    def together(self, streams: Iterable[str]) -> float | None:
        """The sum of the rates of these streams; None unless each is known."""
        known = [self.rates.get(name.casefold()) for name in streams]
        return None if None in known or not known else sum(rate for rate in known if rate is not None)

    def selectivity(self, one: str, other: str) -> float | None:
        return self.selectivities.get(frozenset((one.casefold(), other.casefold())))


UNKNOWN = Expected()


def check_names(expected: Expected, script: s.Script, inputs: Iterable[str] = ()) -> None:
    """Raise UnknownInput if statistics, or these other `inputs`, name an input that the query does not have."""
    names = dict.fromkeys(_names(script))
    folded = {name.casefold() for name in names}
    said: Iterable[str] = (
        *map(str.casefold, inputs),
        *expected.rates,
        *(name for pair in expected.selectivities for name in sorted(pair)),
    )
    for name in said:
        if name not in folded:
            shown = expected.written.get(name, name)
            raise UnknownInput(
                f"there is no input or stream called {shown} in this query; there are {', '.join(names)}"
            )


def _names(script: s.Script) -> Iterable[str]:
    for node in s.walk(script):
        match node:
            case s.Input(alias=s.Identifier(text=text)):
                yield text
            case s.StreamRef(name=name):
                yield name.text
