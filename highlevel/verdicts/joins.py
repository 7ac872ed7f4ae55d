"""How joins affect progress and losses: how far their rows are complete, and how far a loss reaches through them.

A row of a join has a time for each input. It is *before* t when one of its times is. All rows before the least bound of
the join's output are out. What is missing at some time is also missing from rows with the times of its partners, by the
bands of every join on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from highlevel.progress.ledger import Ledger
from highlevel.verdicts.marks import EXACT, Mark
from lowmark.query.plan.nodes import (
    Aggregate,
    Counted,
    Finish,
    Gather,
    Join,
    NodeInput,
    Number,
    Pane,
    QueryPlan,
    Reduce,
    Send,
    Step,
    StepInput,
    Totals,
)
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.verdicts import Verdict
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Carried", "LossReach", "step_bounds"]


_Port = tuple[int, int]
"""A join's step, and its port."""

_Times = tuple[int, int]
"""The least time, and the end of the greatest."""


@dataclass(frozen=True, slots=True)
class _Ways:
    """The joins below one step, and the readers of each join's rows on the way there: ports of joins, or None for the
    step itself. Ways that meet go on as one, so there are no more ways than steps. This is sound because bounds only
    grow on the way, and greater bounds lead to greater ones."""

    plan: QueryPlan
    readers: dict[int, set[_Port | None]]

    def carried(self, port: _Port, times: _Times) -> _Times:
        """The times of rows made of those that come to a port from and up to these times."""
        coming, found = {port: times}, times
        for at in sorted(self.readers):  # inputs come first
            through = [self._through(*port, times) for port, times in coming.items() if port[0] == at]
            if through:
                times = _around(through)
                for reader in self.readers[at]:
                    if reader is None:
                        found = _around((found, times))
                    else:
                        coming[reader] = _around((times, coming.get(reader, times)))
        return found

    def _through(self, at: int, port: int, times: _Times) -> _Times:
        join = self.plan.steps[at].plan
        assert isinstance(join, Join)
        start, stop = times
        others = [other for other in range(len(join.inputs)) if other != port]
        if start != NEVER:
            start = min(start, *(join.bands.partners(port, start, other)[0] for other in others))
        if stop != FOREVER:
            stop = max(stop, *(join.bands.partners(port, stop - 1, other)[1] for other in others))
        return start, stop


def _around(times: Collection[_Times]) -> _Times:
    return min(start for start, _ in times), max(stop for _, stop in times)


@dataclass(frozen=True, slots=True)
class _Path:
    """A way from a node or an aggregate step up through joins."""

    attribute: str  # the column whose times the first join's window covers, where a reduction passes it on
    port: _Port  # of the first join
    ways: _Ways

    def carried(self, start: int, stop: int) -> _Times:
        """The least time, and the end of the greatest, of rows made of those from `start` up to `stop`."""
        return self.ways.carried(self.port, (start, stop))


Carried = tuple[int | None, Mark]
"""A mark on the panes of an aggregate step; None: on the times before which the answer's rows are complete."""

_Paths = dict[str | int, list[_Path]]
"""By node or aggregate step."""

_Rows = dict[int, list[tuple[int, _Path | None]]]
"""By step on the way: the steps that read its rows, and the way from there; None: through no join."""

_TimesOf = Callable[[str], tuple[int, int]]
"""The times (from, up to) of the rows concerned, on an attribute."""


def _paths(plan: QueryPlan, step: int) -> tuple[_Paths, _Rows]:
    """The ways of every node and every step with windows whose rows reach this step through joins, and through no other
    step with windows; and, for all steps on the way, the steps that read them."""
    ways = _Ways(plan, {})
    found: dict[str | int, set[tuple[str, _Port]]] = {}
    rows: dict[int, set[tuple[int, str, _Port | None]]] = {}
    pending: list[tuple[int, str, _Port | None]] = [(step, "ts", None)]
    seen = set(pending)
    while pending:
        at, attribute, port = pending.pop()
        here = plan.steps[at]
        if isinstance(here.plan, Join):
            ways.readers.setdefault(at, set()).add(port)
        for number, source in enumerate(here.inputs):
            below, into = attribute, port
            if isinstance(here.plan, Join):
                below, into = "ts", (at, here.port(number))
            elif isinstance(here.plan, Reduce):
                below = here.plan.reduction.pane.attribute
            name = source.node if isinstance(source, NodeInput) else source.step
            if isinstance(name, int) and not isinstance(plan.steps[name].plan, Aggregate | Gather | Totals):
                rows.setdefault(name, set()).add((at, below, into))
                if (name, below, into) not in seen:
                    seen.add((name, below, into))
                    pending.append((name, below, into))
            elif into is not None:
                found.setdefault(name, set()).add((below, into))
    paths: _Paths = {name: [_Path(*entry, ways) for entry in sorted(entries)] for name, entries in found.items()}
    between: _Rows = {
        name: [(at, None if into is None else _Path(below, into, ways)) for at, below, into in entries]
        for name, entries in rows.items()
    }
    return paths, between


def step_bounds(plan: QueryPlan, fronts: Sequence[Sequence[int]]) -> Iterator[int]:
    """For a query with joins: the times before which all rows are out, for each step at which rows wait for others.
    `fronts` are those of the graph."""
    if not any(isinstance(step.plan, Join) for step in plan.steps):
        return
    earliest = _Earliest(plan)
    for at, step in enumerate(plan.steps):
        match step.plan:
            case Join() as join:
                bounds = [FOREVER] * len(join.inputs)
                for number, front in enumerate(fronts[at]):
                    port = step.port(number)
                    bounds[port] = min(bounds[port], _scaled(front, join.inputs[port].unit))
                output = join.bands.output(bounds)
                yield min(earliest.of(source, output[step.port(number)]) for number, source in enumerate(step.inputs))
            case Number() if (pane := _pane_of(plan, at)) is not None:
                waiting = _start(pane, min(fronts[at]))
                yield min(earliest.of(source, waiting) for source in step.inputs)
            case Aggregate(window=window) if window.kind is WindowKind.NONE:
                if (pane := _pane_of(plan, at)) is not None:
                    yield _start(pane, min(fronts[at]))


class _Earliest:
    """The least time of any input in rows whose own time is at a bound or later. A join's row waits by one of its
    times; the others may be earlier, also behind an exchange. Each step is asked once for a bound, however many ways
    lead to it."""

    def __init__(self, plan: QueryPlan) -> None:
        self._plan = plan
        self._known: dict[tuple[NodeInput | StepInput, int], int] = {}

    def of(self, source: NodeInput | StepInput, bound: int) -> int:
        """The least time in a row from this source."""
        if bound in (NEVER, FOREVER):
            return bound
        if (source, bound) not in self._known:
            self._known[source, bound] = self._of(source, bound)
        return self._known[source, bound]

    def _of(self, source: NodeInput | StepInput, bound: int) -> int:
        steps = self._plan.steps
        if isinstance(source, NodeInput):
            sending = (step for step in steps if isinstance(step.plan, Send) and step.plan.node == source.node)
            return min((self.of(below, bound) for step in sending for below in step.inputs), default=bound)
        step = steps[source.step]
        least = bound
        if isinstance(step.plan, Join):
            bands, ports = step.plan.bands, range(len(step.plan.inputs))
            least = min(bands.partners(of, bound, other)[0] for of in ports for other in ports if of != other)
        elif not isinstance(step.plan, Reduce):
            return bound
        return min(bound, *(self.of(below, min(bound, least)) for below in step.inputs))


def _pane_of(plan: QueryPlan, step: int) -> Pane | None:
    """The panes in which an aggregate step reads rows of other steps."""
    for source in plan.steps[step].inputs:
        if not isinstance(source, NodeInput) and isinstance(reduce := plan.steps[source.step].plan, Reduce):
            return reduce.reduction.pane
    return None


def _scaled(front: int, unit: int) -> int:
    return front if front in (NEVER, FOREVER) else front * unit


@dataclass(frozen=True, slots=True)
class _Same:
    """The same times on every attribute."""

    start: int
    stop: int

    def __call__(self, attribute: str) -> tuple[int, int]:
        return self.start, self.stop


class LossReach:
    """Carries losses through a query's joins. The results are marks: on the times of the answer's rows, or on the panes
    of an aggregate step, or of an exchange, that reads a join."""

    def __init__(self, plan: QueryPlan, ledgers: Mapping[str, Ledger], aggregates: Iterable[int]) -> None:
        self._plan = plan
        self._ledgers = ledgers
        self._last = len(plan.steps) - 1
        self._answer, self._shown = _paths(plan, self._last)
        ways = [(step, pane, *_paths(plan, step)) for step in aggregates if (pane := _pane_of(plan, step)) is not None]
        self._steps = {step: (paths, pane) for step, pane, paths, _ in ways}
        self._rows = {step: (rows, pane) for step, pane, _, rows in ways}

    def reaches(self, step: int, source: str | int) -> bool:
        """Whether a join lies between `source` (a node or an aggregate step) and the aggregate step `step`."""
        return step in self._steps and source in self._steps[step][0]

    def panes(self, step: int) -> Iterator[tuple[int, int]]:
        """The first and the last pane of an aggregate step in which rows of a node can lie after joins."""
        if step not in self._steps:
            return
        paths, pane = self._steps[step]
        for source, ways in paths.items():
            ledger = self._ledgers[source] if isinstance(source, str) else None
            if ledger is None or ledger.low is None or ledger.high is None:
                continue
            own = ledger.node.reduction.pane
            for path in ways:
                start, stop = path.carried(own.start(ledger.low), own.start(ledger.high + 1))
                yield _index(pane, start), _index(pane, _before(stop))

    def carries(self, source: str | int) -> bool:
        """Whether marks against a node or an aggregate step go on through joins."""
        return source in self._answer or any(source in paths for paths, _ in self._steps.values())

    def of_node(self, node: str, mark: Mark) -> Iterator[Carried]:
        """Carry a mark on granules of a node."""
        if self.carries(node):
            times = self._on_times(node, mark)
            yield from self._carried(node, mark.verdict, _Same(times.start, times.stop))

    def beside(self, node: str, mark: Mark) -> Iterator[Mark]:
        """Turn a mark on granules of a node whose rows go through no join into one on their times, in an answer that
        other nodes may delay."""
        if not self.carries(node):
            yield self._on_times(node, mark)

    def _on_times(self, node: str, mark: Mark) -> Mark:
        pane = self._ledgers[node].node.reduction.pane
        return Mark(_start(pane, mark.start), _start(pane, mark.stop), mark.verdict)

    def of_windows(self, step: int, window: Window, windows: range, verdict: Verdict) -> Iterator[Carried]:
        """Carry a verdict against windows of an aggregate step."""
        if verdict != EXACT.verdict and self.carries(step):
            yield from self._carried(step, verdict, lambda attribute: _times(window, windows, attribute))

    def beside_windows(self, step: int, window: Window | None, windows: range, verdict: Verdict) -> Iterator[Mark]:
        """The same for windows whose rows go through no join."""
        if window is None or window.axis.kind is not Kind.TIME or verdict == EXACT.verdict or self.carries(step):
            return
        start = window.start(windows.start)
        yield Mark(NEVER if start is None else start, window.end(windows.stop - 1), verdict)

    def shows(self, step: int) -> bool:
        """Whether the answer contains what a step puts out, with no step with windows between."""
        return step == self._last or step in self._shown

    def of_rows(self, step: int, number: int, verdict: Verdict) -> Iterator[tuple[int, Mark]]:
        """Carry a verdict against rows of a step that lie in none of its own windows, to the panes of aggregate steps.
        `number`: see `Out.flaw`. If the number tells nothing about times, the verdict covers all times."""
        for target, (rows, pane) in self._rows.items():
            for reader, path in rows.get(step, ()):
                if reader == target and isinstance(self._plan.steps[step].plan, Reduce):
                    yield target, Mark(number, number + 1, verdict)
                    continue
                times = self._times_of(step, number, reader)
                start, stop = times if path is None else path.carried(*times)
                yield target, Mark(_index(pane, start), _behind(_index(pane, _before(stop))), verdict)

    def _times_of(self, step: int, number: int, reader: int) -> tuple[int, int]:
        """The least time, and the end of the greatest, of what a step reported with this number."""
        window: Window | None
        match self._plan.steps[step].plan, self._plan.steps[reader]:
            case (Join(granule=unit), _):
                return number * unit, (number + 1) * unit
            case Reduce(), Step(plan=Join(inputs=inputs)) as read:
                unit = inputs[read.port(read.inputs.index(StepInput(step)))].unit
                return number * unit, (number + 1) * unit
            case (Counted(window=window) | Finish(window=window), _) if window is not None:
                if window.kind is WindowKind.SLIDE_BY_TUPLE:
                    return number - window.size, number + 1
        return NEVER, FOREVER

    def _carried(self, source: str | int, verdict: Verdict, times: _TimesOf) -> Iterator[Carried]:
        for path in self._answer.get(source, ()):
            own = times(path.attribute)
            yield None, Mark(path.carried(*own)[0], own[1], verdict)
        for step, (paths, pane) in self._steps.items():
            for path in paths.get(source, ()):
                start, stop = path.carried(*times(path.attribute))
                yield step, Mark(_index(pane, start), _behind(_index(pane, _before(stop))), verdict)


def _times(window: Window, windows: range, attribute: str) -> tuple[int, int]:
    """The times of rows of these windows; all times if the attribute is not a time."""
    last = windows.stop - 1
    start = window.start(windows.start) if window.axis.kind is Kind.TIME else None
    if start is None:
        return NEVER, FOREVER
    if attribute == "window_start" and (begins := window.start(last)) is not None:
        return start, begins + 1
    if attribute == "window_end":
        start = window.end(windows.start)
    return start, window.end(last) + 1


def _start(pane: Pane, granule: int) -> int:
    return granule if granule in (NEVER, FOREVER) else pane.start(granule)


def _index(pane: Pane, time: int) -> int:
    return time if time in (NEVER, FOREVER) else pane.index(time)


def _before(time: int) -> int:
    return time if time in (NEVER, FOREVER) else time - 1


def _behind(pane: int) -> int:
    return pane if pane in (NEVER, FOREVER) else pane + 1
