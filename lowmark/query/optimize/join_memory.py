"""What the options of a query say about the memory of its joins without windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lowmark.query.options import DEFAULT_JOINS, Joins
from lowmark.query.plan.nodes import Join, Step

__all__ = ["NoSuchJoin", "with_memory"]


class NoSuchJoin(Exception):
    """An option is for joins that the query does not have: the message begins with its name."""


def with_memory(steps: Sequence[Step], options: Joins) -> tuple[Step, ...]:
    """The steps, with the options in the plans of joins without windows. A hint in the text goes before them."""
    found = tuple(map(_bound, steps, [options] * len(steps)))
    if options != DEFAULT_JOINS and found == tuple(steps) and not any(map(_hinted, steps)):
        raise NoSuchJoin(f"{', '.join(_named(options))} of `join` is for inner joins without windows")
    return found


def _bound(step: Step, options: Joins) -> Step:
    join = step.plan
    if not isinstance(join, Join) or join.oblivious is None:
        return step
    known = join.oblivious
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
    return replace(step, plan=replace(join, oblivious=made))


def _hinted(step: Step) -> bool:
    known = step.plan.oblivious if isinstance(step.plan, Join) else None
    return known is not None and (known.chosen or known.buffer is not None)


def _named(options: Joins) -> Iterator[str]:
    for name in ("memory", "buffer", "limit_mib", "disk_mib", "scrambling"):
        if getattr(options, name) != getattr(DEFAULT_JOINS, name):
            yield name
