"""Feeds a board with what topics would say, without rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lowmark.app.progress.board import ProgressBoard
from lowmark.app.progress.query_progress import QueryProgress
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Account, Bound, LaneLedger, Promise, Punctuation
from lowmark.wire.records.verdicts import Complete, Verdict, WindowSpan
from lowmark.wire.rows.schema import Kind

SECOND = 10**9

NOW = 1_700_000_000
"""By the clock, in seconds."""


def lagging(plan: QueryPlan, **tuples: Sequence[int]) -> ProgressBoard:
    """Source a has promised 47 s, b 22; of each the seconds of its tuples are given."""
    of = ProgressBoard([plan], {"Main": ("a", "b")}, "lowmark")
    go_on(of, plan, "a", 47, tuples.get("a", ()))
    go_on(of, plan, "b", 22, tuples.get("b", ()))
    return of


def go_on(
    of: ProgressBoard, plan: QueryPlan, source: str, second: float | None, tuples: Sequence[int] = (), before: int = 0,
    at: int = NOW,
) -> None:  # fmt: skip
    """It promises, with the seconds of its tuples since it last did, and how many there had been before; `at` by the
    clock, in seconds."""
    promised = Promise((), True) if second is None else Promise((Bound("ts", round(second * SECOND)),))
    for node in plan.stage.nodes:
        granules = Counter(node.reduction.pane.index(at * SECOND) for at in tuples)
        ledger = LaneLedger(
            {"promised": before + len(tuples)}, tuple(Account(at, 0, count) for at, count in sorted(granules.items()))
        )
        of.promised(Punctuation(Origin(plan.stage.fingerprint, source, 5, node.name), 0, promised, ledger), at * SECOND)


def completed(plan: QueryPlan, bucket: int, windows: WindowSpan | None, end: int, attribute: str = "ts") -> Complete:
    kind = Kind.INT if attribute == "row_num" else Kind.TIME
    return Complete(
        "q", 1, bucket, plan.stage.buckets, windows, None, end, attribute, 1, 3, 3, 0, 0, None, (), Verdict(), kind
    )  # fmt: skip


def only(of: ProgressBoard, now: int = NOW) -> QueryProgress:
    (found,) = of.progress(now * SECOND)
    return found


def waits(of: ProgressBoard, now: int = NOW) -> list[tuple[str, str]]:
    return [(item.who, item.why) for item in only(of, now).waiting]
