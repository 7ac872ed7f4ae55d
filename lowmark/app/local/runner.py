"""The local runner: runs sources, nodes and operators of one query in this process, without Kafka or Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Output, Rejection, ResultRows
from highlevel.progress.records import Arrival, Record
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryState
from ingest.config import LIVE_DISORDER, FileConfig, LiveConfig
from ingest.disorder.declarations import Disorder
from ingest.files.source import FileSource, Source
from ingest.live.source import LiveSource
from lowlevel.config import LowLevelConfig
from lowlevel.kernel.codegen.assemble import SkipReason
from lowmark.app.capture.frame_filter import OUTSIDE, frame_filter
from lowmark.app.local.audit import Audit
from lowmark.app.local.bindings import Binding
from lowmark.app.local.late_lines import LateNews
from lowmark.app.local.source_feed import Feed, FeedThreads
from lowmark.query.expr.expressions import Expr
from lowmark.query.options import Late
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.verdicts import Amendment, Complete, Correction, LateRow, Reason
from lowmark.wire.rows.words import Words

__all__ = ["LocalRun"]

_UNTIMED = (SkipReason.NO_TIME.name.lower(), SkipReason.UNKNOWN_INTERFACE.name.lower())
"""Skip reasons of frames without a time: such a frame may belong to any window nearby."""


class LocalRun:
    """One query over captures and interfaces. Inert until `start`; then `results` delivers its rows as they become
    final."""

    def __init__(
        self, plan: QueryPlan, bindings: Sequence[Binding], *, disorder: Disorder | None, config: LowLevelConfig,
        follow: bool = False, promiscuous: bool = False, kernel_filter: bool = False, tell: Callable[[str], None],
        on_late: Callable[[LateNews], None],
    ) -> None:  # fmt: skip
        """`tell` gets notes about a source, one line each, from any thread. `on_late` gets late rows, corrections, and
        amendments of windows that closed before their losses were known."""
        self._on_late = on_late
        self.audit = Audit(plan.window)
        self.unending = follow or any(binding.live for binding in bindings)
        self._feeds = []
        roster: dict[str, tuple[str, ...]] = {}
        for binding in bindings:
            nodes = [node for node in plan.stage.nodes if binding.stream in node.streams]
            keep, note = frame_filter(nodes) if kernel_filter and binding.live else (None, None)
            if note is not None and keep is None:
                self._note(note)
            if binding.live:
                source = _live(binding, disorder, promiscuous, keep, tell)
            else:
                source = _file(binding, disorder, follow, tell)
            self._feeds.append(Feed(source, nodes, config, plan.stage.fingerprint, plan.late is not Late.COUNT))
            roster[binding.stream] = (*roster.get(binding.stream, ()), binding.source)
        self._driver = BucketDriver(plan.stage, (plan,), 0, MemoryState(), Roster.of(roster), 0)
        self._position = 0
        self._limit = plan.limit

    @property
    def received(self) -> int:
        """Frames received so far."""
        return sum(feed.source.received for feed in self._feeds)

    @property
    def read_bytes(self) -> int:
        return sum(feed.source.read_bytes for feed in self._feeds)

    @property
    def total_bytes(self) -> int | None:
        """Bytes of all inputs; None where that is not known."""
        totals = [feed.source.total_bytes for feed in self._feeds]
        return None if None in totals else sum(total for total in totals if total is not None)

    def start(self) -> None:
        """Opens the inputs and compiles or loads the kernels. CaptureError or InterfaceError if an input fails."""
        for feed in self._feeds:
            feed.start()
            if feed.source.filtering:
                self._note(OUTSIDE)
        for feed in self._feeds:
            feed.begin()

    def results(self, on_block: Callable[[], None] = lambda: None) -> Iterator[Words]:
        """Yields rows in batches, the rows of a window together; the audit is complete when this ends. `on_block` is
        called after each block that was read, to show progress."""
        # If two pipes were read in turn, a silent one would block the writer of the other.
        aside = self.unending or sum(feed.source.waits for feed in self._feeds) > 1
        for feed, records in FeedThreads(self._feeds).steps() if aside else self._in_turn():
            for record in records:
                self._driver.take(record, Arrival(self._position, feed.kind))
                self._position += 1
            outcome = self._driver.flush()
            self.audit.late += outcome.counts.late_here
            for output in outcome.outputs:
                yield from self._rows(output)
            if self._limit is not None and self.audit.rows >= self._limit:
                # Blocks already read still go to the operators, which may yet find the rows lossy.
                self._note(f"LIMIT {self._limit:,}: the query stopped reading after these rows")
                self._stop()
            on_block()
        for feed in self._feeds:
            self._account(feed)
        if not self.audit.windows and (self.audit.damage or any(self.audit.skipped[reason] for reason in _UNTIMED)):
            self.audit.reasons.add(Reason.DAMAGED)  # no window can be marked lossy instead

    def stop(self) -> None:
        """Ends the input at what has arrived by now. May be called from a signal handler or another thread."""
        self._note("stopped by hand: windows that were still open hold only what had arrived by then")
        self._stop()

    def _stop(self) -> None:
        for feed in self._feeds:
            feed.source.stop()

    def _note(self, text: str) -> None:
        if text not in self.audit.notes:
            self.audit.notes.append(text)

    def close(self) -> None:
        for feed in self._feeds:
            feed.source.close()

    def _in_turn(self) -> Iterator[tuple[Feed, list[Record]]]:
        waiting = {id(feed): (feed, feed.steps()) for feed in self._feeds}
        while waiting:
            # Read the source that is furthest behind: it holds up all windows, and state ahead of it must be kept.
            feed, steps = min(waiting.values(), key=lambda candidate: candidate[0].low)
            records = next(steps, None)
            if records is None:
                del waiting[id(feed)]
            else:
                yield feed, records

    def _rows(self, output: Output) -> Iterator[Words]:
        match output:
            case ResultRows(rows=rows):
                left = None if self._limit is None else self._limit - self.audit.rows
                self.audit.rows += len(rows[:left])
                if len(rows[:left]):
                    yield rows[:left]
            case Complete():
                self.audit.complete(output)
            case Amendment():
                self.audit.amend(output)
                self._on_late(output)
            case LateRow() | Correction():
                self._on_late(output)
            case Rejection(detail=detail):
                raise RuntimeError(f"a record of this process was refused: {detail}")

    def _account(self, feed: Feed) -> None:
        audit = self.audit
        audit.received += feed.nodes.received
        audit.decoded += feed.nodes.decoded
        audit.dropped += feed.nodes.dropped
        audit.skipped.update({reason.name.lower(): count for reason, count in feed.nodes.skipped.items()})
        for counts in feed.nodes.counts().values():
            audit.filtered += counts.filtered
            audit.late += counts.late
        found = [audit.crowded, *(pressure.crowded() for pressure in feed.nodes.pressures().values())]
        audit.crowded = max((one for one in found if one), key=lambda one: one.wanted, default=None)
        if (bound_ns := feed.source.bound_ns) is not None:
            name = feed.source.name
            audit.notes.append(f"{name}: packets wait {bound_ns / 1e6:g} ms, by the disorder that was measured")
        audit.damage += feed.source.damages


def _live(
    binding: Binding, disorder: Disorder | None, promiscuous: bool, keep: Expr | None, tell: Callable[[str], None]
) -> Source:
    live = LiveConfig(
        name=binding.source, stream=binding.stream, interface=binding.path, disorder=disorder or LIVE_DISORDER,
        promiscuous=promiscuous, keep=keep,
    )  # fmt: skip
    return LiveSource(live, rank=binding.rank, fanout=binding.fanout, tell=tell)


def _file(binding: Binding, disorder: Disorder | None, follow: bool, tell: Callable[[str], None]) -> Source:
    file = FileConfig(
        name=binding.source, stream=binding.stream, path=binding.path, disorder=disorder, follow=follow
    )  # fmt: skip
    return FileSource(file, rank=binding.rank, tell=tell)
