"""Captures that come through pipes, cut where a test wants: the command over them, and what it says of its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import strategies as st

from ingest.columns import Columns
from ingest.config import FileConfig
from ingest.disorder.declarations import Disorder, Scan
from ingest.disorder.low_watermarks import arrival_lows
from ingest.files.series import open_captures
from lowmark.app.local import lossy_windows
from lowmark.app.local import runner as local
from lowmark.app.local.bindings import Binding
from lowmark.wire.frames import FrameBlock
from lowmark.wire.rows.values import FOREVER
from tests.acceptance.command import Outcome, Row, query
from tests.acceptance.traffic import Captures
from tests.naive.compare import differences
from tests.naive.evaluate import answer

__all__ = ["DISORDERS", "Piped", "check_answer", "check_windows", "cuts", "piped"]

Cuts = Callable[[int], Sequence[int]]
"""Of so many frames: before which of them a new piece of the pipe begins."""


class PipedSource(local.FileSource):
    """A small capture, whose frames arrive in pieces."""

    cuts: ClassVar[Cuts]

    def blocks(self) -> Iterator[FrameBlock]:
        assert self.disorder is not None
        assert not isinstance(self.disorder, Scan)
        lows = arrival_lows(self.disorder)
        capture = open_captures(self._config.path, False)
        frames = next(iter(capture.blocks()), None)
        if frames is not None:
            bounds = [0, *sorted(PipedSource.cuts(len(frames))), len(frames)]
            for start, stop in pairwise(bounds):
                part = {of.name: getattr(frames.columns, of.name)[start:stop] for of in fields(Columns)}
                columns = Columns(**part)
                low, after = lows.of(columns)
                self.received += len(low)
                yield FrameBlock(frames.data, **part, low=low, low_after=after)
        self.ended = True
        none = np.empty(0, np.int64)
        codes = np.empty(0, np.int32)
        yield FrameBlock(np.empty(0, np.uint8), none, none, none, none, codes, none, FOREVER)


@dataclass(frozen=True)
class Piped:
    outcome: Outcome
    lossy: frozenset[tuple[str, str]]  # window_start and window_end of the windows that are named

    @property
    def audit(self) -> str:
        return self.outcome.error

    @property
    def exact_rows(self) -> list[Row]:
        return self.exact(self.outcome.rows)

    def exact(self, rows: Sequence[Row]) -> list[Row]:
        """Those of windows that are not said to be lossy."""
        return [row for row in rows if (_shown(row["window_start"]), _shown(row["window_end"])) not in self.lossy]


def _shown(bound: object) -> str:
    return "the beginning" if bound is None else str(bound)


def piped(text: str, captures: Captures, disorder: str, cuts: Cuts, *options: str) -> Piped:
    with _cut(cuts):
        outcome = query(text, captures, "--disorder", disorder, *options)
    named = re.findall(r"^lossy: (\S+|the beginning) … (\S+): ", outcome.error, re.MULTILINE)
    return Piped(outcome, frozenset(named))


@contextmanager
def _cut(cuts: Cuts) -> Iterator[None]:
    def source(binding: Binding, disorder: Disorder | None, follow: bool, tell: Callable[[str], None]) -> PipedSource:
        config = FileConfig(
            name=binding.source, stream=binding.stream, path=binding.path, disorder=disorder, follow=follow
        )
        return PipedSource(config, rank=binding.rank)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PipedSource, "cuts", staticmethod(cuts), raising=False)
        patch.setattr(local, "_file", source)
        patch.setattr(lossy_windows, "_FIRST", 10_000)  # all lossy windows are named
        yield


DISORDERS = st.sampled_from(("ordered", "within 3 s", "within 5 tuples"))


@st.composite
def cuts(draw: st.DrawFn) -> Cuts:
    places = draw(st.lists(st.integers(0, 120), max_size=6) | st.just(list(range(120))))
    return lambda frames: [at for at in places if at <= frames]


def _uncut(frames: int) -> list[int]:
    return []


def check_windows(text: str, captures: Captures, disorder: str, cut: Cuts) -> None:
    """Windows that are not named as lossy hold what a scan finds, and neither rows nor audit depend on the cuts."""
    expected = answer(text, captures).rows
    whole, pieces = (piped(text, captures, disorder, each) for each in (_uncut, cut))
    assert pieces.outcome.code == (4 if pieces.lossy else 0), pieces.audit
    assert differences(pieces.exact_rows, pieces.exact(expected)) == [], f"{text}\n{disorder}\n{pieces.audit}"
    assert (pieces.outcome.code, pieces.audit) == (whole.outcome.code, whole.audit)
    assert differences(pieces.outcome.rows, whole.outcome.rows) == []


def check_answer(text: str, captures: Captures, disorder: str, cut: Cuts) -> None:
    """An answer that is said to be exact is what a scan finds, and whether it is does not depend on the cuts."""
    expected = answer(text, captures).rows
    whole, pieces = (piped(text, captures, disorder, each) for each in (_uncut, cut))
    said = f"{text}\n{disorder}\n{pieces.audit}"
    assert pieces.outcome.code in (0, 4), said
    if pieces.outcome.code == 0:
        assert differences(pieces.outcome.rows, expected) == [], said
    assert pieces.outcome.code == whole.outcome.code, f"{said}\n{whole.audit}"
    if "window_end" in (expected or [{}])[0] and "PA" not in text and "SATTR" not in text:
        shown = {(row["window_start"], row["window_end"]) for row in pieces.exact_rows}
        wanted = [row for row in expected if (row["window_start"], row["window_end"]) in shown]
        assert differences(pieces.exact_rows, wanted) == [], said
