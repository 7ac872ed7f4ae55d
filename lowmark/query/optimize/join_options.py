"""Applies a query's options to its joins: the memory of joins without windows, and the cost of a pair in joins that
emit rows in order of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lowmark.query.options import DEFAULT_JOINS, Joins
from lowmark.query.plan.joins import Release
from lowmark.query.plan.nodes import Join, Step

__all__ = ["NoSuchJoin", "with_options"]

_OF_MEMORY = ("memory", "buffer", "limit_mib", "disk_mib", "scrambling")


class NoSuchJoin(Exception):
    """An option is for joins that the query does not have: the message begins with the option's name."""

    def __init__(self, options: Iterable[str], joins: str, hint: str) -> None:
        super().__init__(f"{', '.join(options)} of `join` is for {joins}")
        self.hint = hint


def with_options(steps: Sequence[Step], options: Joins) -> tuple[Step, ...]:
    """The steps, with the options in the plans of their joins. A hint in the text takes precedence."""
    joins = [step.plan for step in steps if isinstance(step.plan, Join)]
    changed = {name for name in (*_OF_MEMORY, "pair_ns") if getattr(options, name) != getattr(DEFAULT_JOINS, name)}
    of_memory = [name for name in _OF_MEMORY if name in changed]
    if of_memory and not any(join.oblivious for join in joins):
        raise NoSuchJoin(of_memory, "inner joins without windows", "give its inputs no windows: WHERE A.ts = B.ts")
    if "pair_ns" in changed and not any(map(_chooses, joins)):
        hint = "end it with ORDER BY ts, and hint no other release than adaptive"
        raise NoSuchJoin(["pair_ns"], "joins that choose how to emit rows in order of time", hint)
    return tuple(
        replace(step, plan=_timed(_bound(step.plan, options), options)) if isinstance(step.plan, Join) else step
        for step in steps
    )


def _chooses(join: Join) -> bool:
    return join.in_order is not None and join.in_order.release is Release.ADAPTIVE


def _timed(join: Join, options: Joins) -> Join:
    if join.in_order is None:
        return join
    return replace(join, in_order=replace(join.in_order, cost_ns=options.pair_ns))


def _bound(join: Join, options: Joins) -> Join:
    known = join.oblivious
    if known is None:
        return join
    folded = {name.casefold(): rows for name, rows in options.scrambling.items()}
    given = tuple(folded.get(port.label.casefold()) for port in join.inputs)
    made = replace(
        known,
        memory=known.memory if known.chosen else options.memory,
        scrambling=() if set(given) == {None} else given,
        buffer=known.buffer or options.buffer,
        bound=options.limit,
        disk=options.disk,
    )
    return replace(join, oblivious=made)
