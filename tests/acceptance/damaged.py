"""Series of captures of which one is cut, foreign, or has packets without a time: what a run over them tells."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st

from ingest.disorder.declarations import Disorder, Ordered, Scan, WithinTime, WithinTuples
from lowlevel.config import LowLevelConfig
from lowmark.app.local.audit import Audit
from lowmark.app.local.bindings import bind
from lowmark.app.local.runner import LocalRun
from lowmark.query.compile import compile_query
from lowmark.wire.records.verdicts import Complete, Reason
from tests.fixtures import captures
from tests.naive.frames import Spec, frame

__all__ = ["MINUTE", "SECOND", "SQL", "Case", "Told", "cases", "check_damaged", "pcap", "pcapng", "run"]

SECOND = 10**9
MINUTE = 60 * SECOND
SQL = "SELECT count(*) AS n [RANGE 1 minute] FROM Main"


@dataclass
class Told(Audit):
    """An audit that keeps what is told of windows."""

    spans: list[Complete] = field(default_factory=list)

    def complete(self, complete: Complete) -> None:
        self.spans.append(complete)
        super().complete(complete)


@dataclass
class Found:
    counts: dict[int, int]  # by window
    verdicts: dict[int, frozenset[Reason]]
    audit: Told
    said: list[str]

    @property
    def exact(self) -> set[int]:
        return {window for window, reasons in self.verdicts.items() if not reasons}

    @property
    def lossy(self) -> set[int]:
        return set(self.verdicts) - self.exact


def run(paths: Sequence[Path], disorder: Disorder | None, sql: str = SQL) -> Found:
    plan = compile_query(sql, streams={"Main": len(paths)}, buckets=1)
    said: list[str] = []
    of = LocalRun(
        plan, bind([f"Main={path}" for path in paths], [], ["Main"], print), disorder=disorder,
        config=LowLevelConfig(slots=64), tell=said.append, on_late=lambda news: None,
    )  # fmt: skip
    of.audit = told = Told()
    of.start()
    schema = plan.output
    counts = {}
    for rows in of.results():
        for row in rows.tolist():
            named = dict(zip([column.name for column in schema.columns], row[1:], strict=True))
            counts[named["window_start"] // MINUTE] = named["n"]
    of.close()
    verdicts = {
        window: span.verdict.reasons
        for span in told.spans
        if span.windows is not None
        for window in range(span.windows.first, min(span.windows.to, span.windows.first + 10_000) + 1)
    }
    return Found(counts, verdicts, told, said)


def packet(ns: int) -> bytes:
    return frame(Spec(ts=ns)).data


def pcap(times: Sequence[int]) -> bytes:
    return bytes(captures.pcap([(packet(ns), 60, *divmod(ns, SECOND)) for ns in times], nanoseconds=True).data)


def pcapng(times: Sequence[int], untimed: frozenset[int] = frozenset(), simple: bool = False) -> bytes:
    data = captures.section("<") + captures.interface("<", resolution=9)
    for place, ns in enumerate(times):
        if place in untimed and simple:
            data += captures.simple("<", packet(ns), 60)
        else:
            data += captures.enhanced("<", 7 if place in untimed else 0, ns, packet(ns), 60)
    return data


@dataclass(frozen=True)
class Case:
    members: tuple[tuple[int, ...], ...]  # times, of each file of a series
    beside: tuple[int, ...]  # of another source of the stream
    harmed: int  # a member
    cut: int | None  # bytes left of it; None: it is no capture at all
    untimed: frozenset[int]  # frames of it, instead
    simple: bool
    disorder: Disorder

    @property
    def times(self) -> list[int]:
        """Of what there is to be read. A file that is cut between two packets is a shorter file."""
        members = list(self.members)
        if not self.untimed and self.cut is not None:
            packets, inside = divmod(self.cut - len(pcap([])), len(pcap([0])) - len(pcap([])))
            if packets >= 0 and not inside:
                members[self.harmed] = members[self.harmed][:packets]
        return [*(ns for member in members for ns in member), *self.beside]

    def write(self, folder: Path) -> list[Path]:
        series = folder / "series"
        series.mkdir()
        for place, times in enumerate(self.members):
            data = pcapng(times) if self.untimed else pcap(times)
            if place == self.harmed and self.untimed:
                data = pcapng(times, self.untimed, self.simple)
            elif place == self.harmed:
                data = b"no capture at all, but a text" if self.cut is None else data[: self.cut]
            (series / str(place)).write_bytes(data)
        if not self.beside:
            return [series]
        (folder / "beside").write_bytes(pcap(self.beside))
        return [series, folder / "beside"]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    jitter = draw(st.sampled_from((0, 0, 20, 90)))
    seconds = sorted(draw(st.lists(st.integers(0, 900), min_size=1, max_size=40)))
    delays = draw(st.lists(st.integers(0, jitter), min_size=len(seconds), max_size=len(seconds)))
    times = [
        second * SECOND for _, second in sorted(zip(map(sum, zip(seconds, delays, strict=True)), seconds, strict=True))
    ]
    edges = sorted(draw(st.lists(st.integers(0, len(times)), max_size=3)))
    members = tuple(tuple(times[a:b]) for a, b in zip([0, *edges], [*edges, len(times)], strict=True))
    harmed = draw(st.integers(0, len(members) - 1))
    size = len(members[harmed])
    untimed = (
        draw(st.frozensets(st.integers(0, max(0, size - 1)), max_size=size)) if draw(st.booleans()) else frozenset()
    )
    places = max((at - i for at, ns in enumerate(times) for i in range(at) if times[i] > ns), default=0)
    allowed: list[Disorder] = [WithinTime(jitter * SECOND), WithinTuples(places)] if jitter else [Ordered(), Scan()]
    return Case(
        members, tuple(ns * SECOND for ns in sorted(draw(st.lists(st.integers(0, 1000), max_size=8)))),
        harmed, draw(st.one_of(st.none(), st.integers(0, len(pcap(members[harmed]))))), untimed, draw(st.booleans()),
        draw(st.sampled_from(allowed)),
    )  # fmt: skip


def check_damaged(case: Case) -> None:
    """A window that says `exact` has what the whole capture has; others are lossy for nothing but the damage."""
    with tempfile.TemporaryDirectory() as folder:
        found = run(case.write(Path(folder)), case.disorder)
    expected = Counter(ns // MINUTE for ns in case.times)
    for window in found.exact:
        assert found.counts.get(window, 0) == expected[window], (case, window)
    reasons = {reason for of in found.verdicts.values() for reason in of}
    assert reasons <= {Reason.DAMAGED}, case
    assert found.audit.late == 0, case
