"""Queries of one stage that differ in their aggregates answer as they do by themselves."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowlevel.config import LowLevelConfig
from lowmark.app.local.bindings import bind
from lowmark.app.local.runner import LocalRun
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.plan.sharing import share, unlike
from lowmark.wire.rows.text import json_writer
from tests.acceptance.bucketrun import Ran, run_plan
from tests.acceptance.interleaved import packets_of
from tests.acceptance.queries import INTEGERS, PACKETS, aggregates
from tests.acceptance.test_interleavings import BUCKETS, SEEDS
from tests.acceptance.traffic import Traffic, traffic
from tests.naive.compare import differences
from tests.naive.evaluate import answer

FOLDED = st.one_of(
    st.builds("{}({})".format, st.sampled_from(("sum", "min", "max", "avg", "stddev", "bit_or", "first", "last")),
              st.sampled_from((*INTEGERS, "len / (destPort - 80)"))),
    st.builds("{}({})".format, st.sampled_from(("min", "max", "first", "last")), st.sampled_from(("srcIP", "ts"))),
    st.sampled_from(("count(*)", "count(len / (destPort - 80))", "sum(len / 2.5)")),
)  # fmt: skip
SPLIT = st.sampled_from(("count(distinct destPort)", "median(destPort)", "heavy_hitter(destPort, 2)"))
ENDS = st.sampled_from(("", "", " HAVING count(*) > 2", " HAVING max(len) > total(count(*))",
                        " ORDER BY count(*) DESC LIMIT 2"))  # fmt: skip


@st.composite
def sets(draw: st.DrawFn) -> list[str]:
    """Queries over the same groups."""
    keys = draw(st.sampled_from(("srcIP", "proto, destIP", "prefix(srcIP, 30)", "len / (destPort - 80)")))
    where = draw(st.sampled_from(("", "", " WHERE proto = 6", " WHERE len > 100")))
    source = draw(st.sampled_from(("A", "A UNION B")))
    split = draw(st.booleans())
    found = []
    for _ in range(draw(st.integers(2, 4))):
        calls = draw(st.lists(FOLDED, min_size=1, max_size=3))
        calls += [draw(SPLIT)] if split else []
        named = ", ".join(f"{call} AS c{number}" for number, call in enumerate(calls))
        keyed = draw(st.sampled_from(("{}", "{} AS k"))).format(keys)
        panes = f"RANGE {5 * draw(st.integers(1, 6))} s, SLIDE 5 s"
        found.append(f"SELECT {keyed}, {named} [{panes}] FROM {source}{where} GROUP BY {keys}{draw(ENDS)}")
    return found


def told(ran: Ran) -> object:
    """All that is said of windows."""
    return [
        [(one.windows, one.end, one.rows, one.merged, one.promised, one.verdict) for one in completes]
        for completes in ran.completes
    ]


@given(texts=sets(), sent=traffic(), seed=SEEDS, buckets=BUCKETS, lost=st.booleans())
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_and_verdicts_are_those_of_queries_apart(
    texts: list[str], sent: Traffic, seed: int, buckets: int, lost: bool
) -> None:
    streams = packets_of(sent)
    counts = {name: len(sources) for name, sources in streams.items()}
    apart = [compile_query(text, name=f"q{n}", streams=counts, buckets=buckets) for n, text in enumerate(texts)]
    for alone, shared in zip(apart, share(apart), strict=True):
        one, other = (run_plan(plan, streams, Random(seed), lost) for plan in (alone, shared))
        assert one.rows == other.rows, alone.sql
        assert told(one) == told(other), alone.sql


@given(calls=st.lists(aggregates(PACKETS), min_size=2, max_size=4), sent=traffic(), seed=SEEDS)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_can_share_does(calls: list[str], sent: Traffic, seed: int) -> None:
    streams = packets_of(sent)
    counts = {name: len(sources) for name, sources in streams.items()}
    first, *rest = (
        compile_query(f"SELECT proto, {call} AS c [RANGE 10 s] FROM A GROUP BY proto", name=f"q{n}", streams=counts)
        for n, call in enumerate(calls)
    )
    together = [first, *(plan for plan in rest if not tuple(unlike(first, plan)))]
    for alone, shared in zip(together, share(together), strict=True):
        assert run_plan(alone, streams, Random(seed)).rows == run_plan(shared, streams, Random(seed)).rows, alone.sql


SENT = Traffic(seed=11, sizes=(("A", 400), ("A", 300)), disorder_s=1, nanoseconds=True)
TEXTS = (
    "SELECT srcIP, count(*), sum(len) [RANGE 10 s, SLIDE 5 s] FROM A GROUP BY srcIP",
    "SELECT srcIP AS host, max(len), avg(ttl), last(destPort) [RANGE 5 s] FROM A GROUP BY srcIP HAVING count(*) > 2",
    "SELECT srcIP, min(ts) AS t, variance(len), bit_or(tcp_flags) [RANGE 20 s, SLIDE 5 s] FROM A GROUP BY srcIP",
)


def test_one_kernel_for_all_of_them(tmp_path: Path) -> None:
    captures = SENT.write(tmp_path)
    reads = [f"{name}={path}" for name, path in captures]
    plans = share([compile_query(text, name=f"q{n}", streams={"A": 2}, buckets=1) for n, text in enumerate(TEXTS)])
    for plan in plans:
        assert not differences(answered(plan, reads), answer(plan.sql, captures).rows)


def answered(plan: QueryPlan, reads: list[str]) -> list[dict[str, object]]:
    run = LocalRun(
        plan, bind(reads, (), ("A",), print), disorder=None, config=LowLevelConfig(slots=16), tell=print, on_late=print
    )
    try:
        run.start()
        rows = [json.loads(line) for part in run.results() for line in json_writer(plan.output).write(part)]
    finally:
        run.close()
    assert not run.audit.reasons
    return rows
