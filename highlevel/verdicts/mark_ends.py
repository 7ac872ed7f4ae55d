"""The steps at which marks end: steps that make windows, and steps that send into an exchange."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from highlevel.graph import GraphStep
from highlevel.interface import Space
from highlevel.progress.granules import ROW_NUMBER
from highlevel.progress.ledger import Ledger
from highlevel.verdicts.exchanged_windows import FollowedRow, FollowedSequence
from highlevel.verdicts.unions import MeldedRow, MeldedSequence
from highlevel.verdicts.window_sequence import SequenceRow, WindowSequence
from lowmark.query.plan.fingerprint import step_digests
from lowmark.query.plan.nodes import Gather, MakesWindows, NodeInput, QueryPlan, Send, StepInput, Totals
from lowmark.query.windows.window import WindowKind
from lowmark.wire.rows.values import NEVER

__all__ = ["End", "StepWindows"]

StepWindows = WindowSequence | FollowedSequence | MeldedSequence
StoredWindows = SequenceRow | FollowedRow | MeldedRow

_WINDOWS: Space[StoredWindows] = Space(
    "graph.sequence", lambda row: json.dumps(row, separators=(",", ":")).encode(), json.loads
)
"""The sequence of a step's windows."""


@dataclass(slots=True)
class End:
    """A step at which marks end."""

    step: GraphStep
    nodes: tuple[str, ...]  # it reads their panes
    follows: tuple[str, ...]
    """The steps whose windows it merges: after an exchange, one step, with the windows of all buckets; without a node,
    the members of a union."""
    sequence: StepWindows | None  # None: it sends into an exchange
    sends: tuple[str, int] | None  # the query, and the number of the step in its plan
    shown_by: list[str] = field(default_factory=list)  # the queries whose windows these are
    stored: StoredWindows | None = None  # the sequence as stored in the state
    leads_on: bool = False  # rows of its windows reach another end
    leads_to: tuple[str, ...] = ()
    shown: bool = False  # … or answers without windows

    @property
    def front(self) -> int:
        return min(self.step.fronts)

    def since(self, front: int) -> int:
        """The first pane that has not ended; for row numbers, the pane of the first row as long as none has ended."""
        rows = self.sequence is not None and self.sequence.window.axis.attribute == ROW_NUMBER
        return 0 if rows and front == NEVER else front

    @property
    def landmark(self) -> bool:
        return self.sequence is not None and self.sequence.window.kind is WindowKind.LANDMARK

    @classmethod
    def of(cls, plan: QueryPlan, number: int, step: GraphStep, ledgers: Mapping[str, Ledger]) -> End:
        """A step of a plan, with the sequence of its windows as the state has it."""
        at = plan.steps[number]
        nodes = tuple(source.node for source in at.inputs if isinstance(source, NodeInput))
        digests = step_digests(plan)
        follows = tuple(digests[below] for below in _followed(plan, number))
        if not isinstance(at.plan, MakesWindows):
            return cls(step, nodes, follows, None, (plan.name, number))
        own, window = [ledgers[node] for node in nodes], at.plan.window
        sequence: StepWindows
        if not follows:
            sequence = WindowSequence(window, own, not own)
        else:
            sequence = FollowedSequence(window, *own) if own else MeldedSequence(window, follows)
        if (row := step.state.get(_WINDOWS, 0)) is not None:
            sequence.restore(row)  # type: ignore[arg-type]  # the step's digest determines the kind
        return cls(step, nodes, follows, sequence, None)

    def save(self) -> None:
        """Store the sequence if it has changed."""
        if self.sequence is not None and (row := self.sequence.row()) != self.stored:
            self.stored = row
            self.step.state.put(_WINDOWS, 0, row)


def _followed(plan: QueryPlan, number: int) -> Iterator[int]:
    """The steps whose windows this step merges."""
    at = plan.steps[number]
    if not isinstance(at.plan, Gather | Totals):
        return
    nodes = [source.node for source in at.inputs if isinstance(source, NodeInput)]
    senders = [of for of, each in enumerate(plan.steps) if isinstance(each.plan, Send) and each.plan.node in nodes]
    members = [source.step for source in at.inputs if isinstance(source, StepInput)]
    yield from dict.fromkeys(_windowed_below(plan, of) for of in (senders if nodes else members))


def _windowed_below(plan: QueryPlan, step: int) -> int:
    """The step whose windows' rows this step passes on."""
    while not isinstance(plan.steps[step].plan, MakesWindows):
        source = plan.steps[step].inputs[0]
        if isinstance(source, NodeInput):
            raise ValueError(f"query {plan.name}: step {step} passes no windows on")
        step = source.step
    return step
