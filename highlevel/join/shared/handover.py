"""Hands kept rows over when the queries of a job change: a join that begins takes them from the joins that ran before.

Joins of the same two inputs on the same equalities keep the same rows, each as far back as its largest window needs. A
piece of state lists the running joins, with the times from which on they have every row. A join that begins copies the
rows of the join that reaches furthest back, and marks the rows that no join has kept as missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

import numpy as np

from highlevel.interface import ONLY, Space, State, Words
from highlevel.join.bins import bins_space
from highlevel.join.bounds import Bounds, bounds_space
from highlevel.join.kept_rows import Kept
from highlevel.join.marks import JoinMarks
from highlevel.join.output_promises import Promising
from highlevel.join.shared.buffer import drop_index
from highlevel.join.shared.waiting import waiting_space
from highlevel.row_marks import RowMark
from highlevel.state import ScopedState
from lowmark.query.plan.fingerprint import share_names, step_digests
from lowmark.query.plan.nodes import Join, QueryPlan
from lowmark.query.plan.shared_joins import Share
from lowmark.query.windows.join_bands import Bands
from lowmark.wire.records.verdicts import Verdict
from lowmark.wire.rows.values import NEVER

__all__ = ["Handover", "RunningJoin", "hand_over", "listed_steps", "running", "scope"]

_PORTS = (0, 1)
_PARTIAL = Verdict(partial=True)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A join that has run, or several that ran as one. `members`: the digests of the steps; the last one names the
    state. `since`: for each input, the time from which on the join has every row."""

    family: str
    members: tuple[str, ...]
    sizes: tuple[int, ...]  # those of the largest window
    since: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.members[-1]


@dataclass(frozen=True, slots=True)
class RunningJoin:
    """A join of two inputs that runs now, or several that run as one: the digests of the steps and their plans, the one
    with the shortest window first. Joins of one `family` can take over each other's rows."""

    family: str
    members: tuple[str, ...]
    joins: tuple[Join, ...]

    @property
    def name(self) -> str:
        return self.members[-1]

    @property
    def largest(self) -> Join:
        return self.joins[-1]


@dataclass(slots=True)
class Handover:
    """What has changed. `heirs`: by the name of a join that begins, the joins whose rows it takes over. `ended`: the
    steps that run no longer. `marks`: by the digest of a new step, marks on its rows."""

    heirs: dict[str, list[str]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    marks: dict[str, list[RowMark]] = field(default_factory=dict)


_LISTED: Space[list[_Listed]] = Space(
    "joins",
    lambda all_: json.dumps([astuple(each) for each in all_]).encode(),
    lambda data: [_Listed(family, *map(tuple, rest)) for family, *rest in json.loads(data)],
)


def scope(state: State, name: str) -> ScopedState:
    """The state of a step."""
    return ScopedState(state, f"step.{name}.")


def running(plans: Sequence[QueryPlan], shares: Mapping[str, Share]) -> list[RunningJoin]:
    """The joins whose rows others can take over. `shares`: the shared joins by the digests of their members."""
    found: dict[str, RunningJoin] = {}
    for plan in plans:
        for step, digest, family in zip(plan.steps, step_digests(plan), share_names(plan), strict=True):
            if family is not None and isinstance(step.plan, Join):
                share = shares.get(digest)
                members, joins = ((digest,), (step.plan,)) if share is None else (share.members, share.plan.joins)
                found[members[-1]] = RunningJoin(family, members, joins)
    return list(found.values())


def listed_steps(state: State) -> frozenset[str]:
    """The digests of the joins that have run: what they have stored is handed over, and dropped by that."""
    return frozenset(digest for each in state.get(_LISTED, ONLY) or () for digest in each.members)


def hand_over(now: Sequence[RunningJoin], state: State, seen: int) -> Handover:
    """Adapt the state of a bucket to the joins that run now. All rows that came so far lie before `seen`."""
    before, found = state.get(_LISTED, ONLY) or [], Handover()
    if {each.members for each in before} == {each.members for each in now}:
        return found
    listed: list[_Listed] = []
    made: list[tuple[RunningJoin, Bounds, list[Words]]] = []
    for new in now:
        family = [_reaching(each, new.largest, state) for each in before if each.family == new.family]
        most = [_most(family, port) for port in _PORTS] if family else []
        since = tuple(each.since[port] for port, each in enumerate(most)) or (seen, seen)
        listed.append(_Listed(new.family, new.members, new.largest.bands.sizes, since))
        known = {digest for each in family for digest in each.members}
        for digest, join in zip(new.members, new.joins, strict=True):
            if digest not in known and seen > NEVER:
                found.marks[digest] = list(_missing(join, since, seen))
        if any(each.name != new.name for each in most):
            found.heirs[new.name] = [each.name for each in family]
            bounds = _bounds(found.heirs[new.name], state)
            made.append((new, bounds, [_rows(new.largest, bounds, *of, state) for of in enumerate(most)]))
    still = {digest for new in now for digest in new.members}
    found.ended = [digest for each in before for digest in each.members if digest not in still]
    names = {new.name for new in now}
    for name in (*(each.name for each in before if each.name not in names), *found.heirs):
        _drop(scope(state, name))
    for new, bounds, parts in made:
        own, kept = scope(state, new.name), Kept(new.largest)
        own.put(bounds_space(), ONLY, bounds)
        for port, rows in enumerate(parts):
            kept.keep(port, rows, own)
    state.put(_LISTED, ONLY, listed)
    return found


def _reaching(listed: _Listed, plan: Join, state: State) -> _Listed:
    """The listed join with the times from which on it has every row now. `plan`: a join of the same family."""
    bands, bounds = Bands(listed.sizes, plan.tumbling), _bounds([listed.name], state).times
    return replace(listed, since=tuple(max(listed.since[port], bands.alive(port, bounds)) for port in _PORTS))


def _most(family: Sequence[_Listed], port: int) -> _Listed:
    """The join whose rows of an input reach furthest back."""
    return min(family, key=lambda each: each.since[port])


def _bounds(names: Sequence[str], state: State) -> Bounds:
    """The greatest bounds of the inputs in any of these joins."""
    known = [piece.times for name in names if (piece := scope(state, name).get(bounds_space(), ONLY)) is not None]
    return Bounds(tuple(max((times[port] for times in known), default=NEVER) for port in _PORTS))


def _rows(plan: Join, bounds: Bounds, port: int, of: _Listed, state: State) -> Words:
    """The rows of an input that one join has kept and another one still needs."""
    space, own = Kept(plan).bins(port), scope(state, of.name)
    parts = [np.empty((0, plan.inputs[port].schema.words), np.uint64)]
    parts += [piece.rows for key in own.keys(space) if (piece := own.get(space, key)) is not None]
    rows = np.concatenate(parts)
    at = plan.inputs[port].schema.offset(plan.inputs[port].attribute)
    return np.ascontiguousarray(rows[rows[:, at].view(np.int64) >= plan.bands.alive(port, bounds.times)])


def _missing(plan: Join, since: Sequence[int], seen: int) -> Iterator[RowMark]:
    """Marks on rows of a new join: those that it would have output earlier, and those that need rows which nobody has
    kept."""
    marks = JoinMarks(plan, Promising(plan))
    yield marks.of_rows(_PARTIAL, (NEVER, seen))
    for port, time in enumerate(since):
        if time > NEVER:
            yield marks.of_input(port, RowMark(_PARTIAL, {plan.inputs[port].attribute: (NEVER, time)}))


def _drop(own: State) -> None:
    drop_index(own)
    own.drop(bounds_space(), ONLY)
    own.drop(waiting_space(0), ONLY)
    for space in (bins_space(f"rows.{port}", 0) for port in _PORTS):
        for key in own.keys(space):
            own.drop(space, key)
