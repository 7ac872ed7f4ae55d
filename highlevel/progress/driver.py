"""The pure driver of one bucket of a stage: lanes, fencing, ledger, frontiers and the chains of operators.

It serves both runners. The same records in the same order give the same outputs, wherever the order is cut into
micro-batches. Granules are the node's panes throughout; ports of operators that read a node get
`Promise((Bound(PANE, below=f),), last=f == FOREVER)`, f the first pane that has not ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from highlevel.interface import State
from highlevel.progress.outputs import Outcome
from highlevel.progress.records import Arrival, Record
from highlevel.progress.roster import Roster
from lowmark.query.plan import QueryPlan, Stage

__all__ = ["BucketDriver", "Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a bucket stands. Times in the node's attribute (`ts`: ns since 1970); None: nothing is promised yet."""

    frontiers: tuple[tuple[str, int | None], ...]  # by query: complete up to; FOREVER: its sources have ended
    open_windows: tuple[tuple[str, int], ...]  # by query: windows that hold tuples or losses and are not closed
    waiting: tuple[tuple[str, str], ...]  # (node, source) that hold the frontier of the node
    ended: bool  # nothing more will come out


class BucketDriver:
    """One for each (stage, bucket), made anew from its state for a micro-batch or kept from one to the next.

    `plans` are the queries that read the stage, in a fixed order. `roster` is the one declared when the state is
    empty; later changes come as control records and are kept in the state. `generation` is the job's.
    """

    def __init__(
        self, stage: Stage, plans: tuple[QueryPlan, ...], bucket: int, state: State, roster: Roster, generation: int
    ) -> None: ...

    def take(self, record: Record, arrival: Arrival) -> None:
        """The next record of the bucket, in order of position."""

    def flush(self) -> Outcome:
        """End a micro-batch: hand pending runs to the operators, write the driver's pieces to the state (the runner
        then commits it), and give out everything since the last flush."""

    def progress(self) -> Progress: ...
