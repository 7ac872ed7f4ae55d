"""Joins of several queries that run as one: each query says what it says alone, and joins and leaves come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from highlevel.progress.outputs import Output, ResultRows
from highlevel.progress.records import Batch, Record
from lowmark.query.compile import compile_query
from lowmark.query.explain.sharing import render_beside
from lowmark.query.optimize.stream_statistics import Expected
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.fingerprint import share_names, step_digests
from lowmark.query.plan.joins import Scheduling
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.plan.shared_joins import shares
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.verdicts import Amendment, Complete, Verdict
from lowmark.wire.rows.values import NEVER, parse_time
from tests.acceptance.bucketrun import shown_rows
from tests.acceptance.interleaved import packets_of
from tests.acceptance.traffic import Traffic, traffic
from tests.naive.evaluate import ResultRow, rows_of
from tests.progress.test_graph import Buckets, sent_of

_FROM = "FROM A AS x [RANGE {0} s], B AS y [RANGE {1} s] WHERE x.destIP = y.destIP"
PAIRS = "SELECT {2} x.srcIP, x.ts, y.ts AS u " + _FROM
COUNTS = "SELECT {2} x.destIP, count(*) AS c, max(x.srcIP) [RANGE 10 s, SLIDE 5 s, WA x.ts] " + _FROM
COUNTS += " GROUP BY x.destIP"
MOVED = "SELECT {2} x.srcIP, count(*) AS c [RANGE 10 s, WA x.ts] " + _FROM + " GROUP BY x.srcIP"  # through an exchange

SENT = Traffic(5, (("A", 300), ("B", 300)), 1, True)
MQT = "/*+ schedule(mqt) */"


def bag(rows: Iterable[ResultRow]) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in rows)


def certain(outputs: Sequence[Sequence[Output]]) -> list[tuple[int, int]]:
    """The times, from and up to, of which all buckets say that rows are exact and whole: of windows their ends."""
    known: list[list[tuple[int, int]]] = []
    for part in outputs:
        found, end = [], NEVER
        for output in (each for each in part if isinstance(each, Complete)):
            begin, end = (end, output.end) if output.windows is None else (end + 1, output.end + 1)
            if output.verdict == Verdict():
                found.append((begin, end))
            end -= output.windows is not None
        known.append(found)
    first, *others = known
    for other in others:
        first = [(max(a, c), min(b, d)) for a, b in first for c, d in other if max(a, c) < min(b, d)]
    return first


def compiled(texts: Iterable[str], buckets: int = 1) -> list[QueryPlan]:
    return [
        compile_query(text, name=f"q{n}", streams={"A": 1, "B": 1}, buckets=buckets) for n, text in enumerate(texts)
    ]


@st.composite
def texts(draw: st.DrawFn, kinds: tuple[str, ...]) -> list[str]:
    steps = draw(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=3))
    hint = draw(st.sampled_from(("/*+ schedule(lwo) */", "/*+ schedule(swf) */", "/*+ schedule(mqt) */")))
    x, y, found = draw(st.integers(18, 24)), draw(st.integers(18, 24)), []
    for n, (more, also) in enumerate([(0, 0), *steps]):
        x, y = x + more, y + also
        found.append(draw(st.sampled_from(kinds)).format(x, y, "" if n else hint))
    return draw(st.permutations(found))


def ordered(said: object) -> object:
    """What is said, with rows of one record in an order of their own: joins have none."""
    at, told = said if isinstance(said, tuple) else (None, said)
    return (at, (told[0], sorted(told[1]))) if isinstance(told, tuple) else (at, told)


CASES = st.one_of(
    st.tuples(st.just(1), texts((PAIRS, COUNTS))), st.tuples(st.just(2), texts((PAIRS, COUNTS, MOVED)))
)  # fmt: skip


@given(case=CASES, sent=traffic(), seed=st.integers(0, 2**32))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_each_says_what_it_says_alone(case: tuple[int, list[str]], sent: Traffic, seed: int) -> None:
    """Whatever is lost, and with the state written and read after each record."""
    buckets, asked = case
    counts = {name: len(sources) for name, sources in packets_of(sent).items()}
    plans = [
        compile_query(text, name=f"q{n}", streams=counts, buckets=buckets) for n, text in enumerate(asked)
    ]  # fmt: skip
    assert len({plan.stage.fingerprint for plan in plans}) == 1
    (share,) = shares(plans)
    assert {name for names in share.queries for name in names} == {plan.name for plan in plans}
    roster, records = sent_of(plans[0], sent, seed)
    together = Buckets(plans, roster)
    alone = {plan.name: Buckets((plan,), roster) for plan in plans}
    for bucket, record in records:
        for each in (together, *alone.values()):
            each.take(bucket, record)
    for name, each in alone.items():
        assert list(map(ordered, together.said[name])) == list(map(ordered, each.said[name])), name


@dataclass(frozen=True)
class Stay:
    """A query that is there for a part of the records, from its begin up to its end."""

    plan: QueryPlan = field(repr=False)
    text: str
    begin: float
    end: float


@st.composite
def stays(draw: st.DrawFn, counts: Mapping[str, int], buckets: int) -> list[Stay]:
    """Queries of windows in each other, each asked once; some share if there are several, or are alone."""
    x, y, found = draw(st.integers(2, 20)), draw(st.integers(1, 20)), []
    hints = ("", "", "/*+ schedule(lwo) */", "/*+ schedule(swf) */", MQT, "/*+ schedule(alone) */")
    kinds = (PAIRS, COUNTS, COUNTS, *((MOVED,) if buckets > 1 else ()))
    for n in range(draw(st.integers(2, 5))):
        x, y = x + draw(st.integers(1, 6)), y + draw(st.integers(0, 6))
        text = draw(st.sampled_from(kinds)).format(x, y, draw(st.sampled_from(hints)))
        plan = compile_query(text, name=f"q{n}", streams=dict(counts), buckets=buckets)
        begin = draw(st.sampled_from((0.0, 0.0, draw(st.floats(0, 1)))))
        found.append(Stay(plan, text, begin, draw(st.sampled_from((1.1, 1.1, draw(st.floats(begin, 1)))))))
    return found


def later_is_right(plan: QueryPlan, outputs: Sequence[Sequence[Output]], expected: Sequence[ResultRow]) -> int:
    """The rows of a query that came later; returns how many of them are said to be exact."""
    windows = "window_end" in plan.output.names
    times = ("window_end",) if windows else ("x.ts", "u")
    shown = [row for part in outputs for each in part if isinstance(each, ResultRows) for row in shown_rows(each)]
    if not windows:
        assert not bag(shown) - bag(expected)
    amended = any(isinstance(each, Amendment) for part in outputs for each in part)
    spans = [] if amended else certain(outputs)

    def exact(rows: Iterable[ResultRow]) -> Counter[tuple[object, ...]]:
        least = ((min(parse_time(str(row[name])) for name in times), row) for row in rows)
        return bag(row for time, row in least if any(begin <= time < end for begin, end in spans))

    assert exact(shown) == exact(expected), plan.sql
    return exact(shown).total()


@given(sent=traffic(), seed=st.integers(0, 2**32), buckets=st.sampled_from((1, 2)), data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_queries_join_and_leave_a_running_share(sent: Traffic, seed: int, buckets: int, data: st.DataObject) -> None:
    """A query says, as long as it stays, what it says alone. One that comes later says of no window that it is exact
    which is not as the definition has it, and is whole again after a while."""
    streams = packets_of(sent)
    asked = data.draw(stays({name: len(each) for name, each in streams.items()}, buckets))
    roster, records = sent_of(asked[0].plan, sent, seed)
    changing = Buckets([each.plan for each in asked], roster)
    for at, (bucket, record) in enumerate(records):
        changing.plans = tuple(each.plan for each in asked if each.begin * len(records) <= at < each.end * len(records))
        changing.take(bucket, record)
    for each in asked:
        given = changing.outputs[each.plan.name]
        if each.begin * len(records) > 0:
            later_is_right(each.plan, given, rows_of(each.plan.sql, streams))
            continue
        alone = Buckets([each.plan], roster)
        for at, (bucket, record) in enumerate(records):
            if at < each.end * len(records):
                alone.take(bucket, record)
        said, expected = (list(map(ordered, of.said[each.plan.name])) for of in (changing, alone))
        assert said == expected, each


def test_one_that_comes_later_finds_rows_in_windows_that_both_inputs_have_passed() -> None:
    """Rows that it takes over are older than its inputs' promises by up to the window of the join."""
    sent = Traffic(0, (("A", 100), ("B", 20)), 0, False)
    streams = packets_of(sent)
    later, first = compiled([COUNTS.format(11, 1, ""), PAIRS.format(12, 1, "")])
    roster, records = sent_of(first, sent, 0)
    changing = Buckets([first, later], roster)
    for at, (bucket, record) in enumerate(records):
        changing.plans = (first,) if 2 * at < len(records) else (first, later)
        changing.take(bucket, record)
    later_is_right(later, changing.outputs[later.name], rows_of(later.sql, streams))


def test_the_largest_query_leaves_and_another_one_comes() -> None:
    """In order of time: what is said of windows after those that the newcomer could not fill is exact."""
    streams = packets_of(SENT)
    texts = [COUNTS.format(*sizes) for sizes in ((3, 3, MQT), (6, 6, ""), (9, 9, ""), (12, 8, ""))]
    small, middle, large, later = compiled(texts)
    roster, shuffled = sent_of(small, SENT, 1, whole=True)
    records = in_step(shuffled)
    steps = (small, middle, large), (small, middle, large, later), (small, middle, later), (small, later), (later,)
    changing, alone = Buckets(steps[0], roster), Buckets((small,), roster)
    for at, (bucket, record) in enumerate(records):
        changing.plans = steps[5 * at // len(records)]
        assert len(changing.plans) == 1 or len(shares(changing.plans)) == 1
        changing.take(bucket, record)
        if small in changing.plans:
            alone.take(bucket, record)
    assert list(map(ordered, changing.said[small.name])) == list(map(ordered, alone.said[small.name]))
    assert later_is_right(later, changing.outputs[later.name], rows_of(later.sql, streams)) > 20
    kept = [name for name, _ in changing.stores[0].pieces if name.startswith("step.")]
    assert {name.split(".")[1] for name in kept} == set(step_digests(later)) | ended(small, middle, large)


def ended(*plans: QueryPlan) -> set[str]:
    """The steps that are no joins: what they keep stays."""
    return {
        digest
        for plan in plans
        for digest, family in zip(step_digests(plan), share_names(plan), strict=True)
        if family is None
    }


def in_step(records: Sequence[tuple[int, Record]]) -> list[tuple[int, Record]]:
    """The sources send at the same pace."""
    lanes: dict[object, list[tuple[int, Record]]] = {}
    for bucket, record in records:
        assert isinstance(record, Batch | Punctuation)
        lanes.setdefault(record.origin, []).append((bucket, record))
    paced = [(at / len(lane), each) for lane in lanes.values() for at, each in enumerate(lane)]
    return [each for _, each in sorted(paced, key=lambda one: one[0])]


def test_what_can_share_and_what_cannot() -> None:
    base = PAIRS.format(5, 5, MQT)
    for text, shared in (
        (PAIRS.format(9, 9, ""), True),
        (PAIRS.format(9, 4, ""), False),  # neither window lies in the other
        (PAIRS.format(9, 9, "/*+ schedule(alone) */"), False),
        (PAIRS.format(9, 9, "").replace("x.destIP = y.destIP", "x.destIP = y.srcIP"), False),
        (PAIRS.format(9, 9, "") + " ORDER BY ts", False),
        (base, False),  # the same join is one anyway
        (COUNTS.format(5, 5, ""), True),  # its rows show other columns
    ):
        assert bool(shares(compiled([base, text]))) is shared, text


@pytest.mark.parametrize(
    ("seconds", "shared"),
    [((5, 9), False), ((9, 10), False), ((1, 5, 10), False), ((5, 8, 9), True), ((1, 8, 9), True)],
)
def test_joins_are_shared_where_it_is_worth_it_or_a_hint_asks_for_it(seconds: tuple[int, ...], shared: bool) -> None:
    texts = [PAIRS.format(each, each, "") for each in seconds]
    assert bool(shares(compiled(texts))) is shared
    assert shares(compiled([*texts[1:], PAIRS.format(seconds[0], seconds[0], MQT)]))


def test_a_hint_chooses_the_schedule() -> None:
    for scheduling in (Scheduling.LWO, Scheduling.SWF, Scheduling.MQT):
        hint = f"/*+ schedule({scheduling.value}) */"
        (share,) = shares(compiled([PAIRS.format(5, 5, ""), PAIRS.format(9, 9, hint)]))
        assert share.plan.scheduling is scheduling
    (share,) = shares(compiled([PAIRS.format(5, 5, "")] * 2 + [COUNTS.format(5, 5, ""), PAIRS.format(9, 9, "")]))
    assert share.plan.scheduling is Scheduling.MQT
    assert sorted(share.plan.readers) == [1, 1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT /*+ schedule(lwo) */ ts FROM A",
        "SELECT /*+ schedule(lwo) */ x.ts FROM A AS x [RANGE 1 s] LEFT JOIN B AS y [RANGE 1 s] ON x.len = y.len",
        PAIRS.format(1, 1, "/*+ schedule(fifo) */"),
    ],
)
def test_hints_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(QueryError, match="schedule"):
        compile_query(text)


def test_explain_beside_says_what_is_shared_and_saved() -> None:
    one, other, third = compiled([PAIRS.format(5, 5, ""), COUNTS.format(15, 15, ""), PAIRS.format(20, 20, "")])
    said = render_beside(one, [other, third])
    assert "one join, in place of one each, for the windows of q0 (5 s), q1 (15 s) and q2 (20 s), by mqt" in said
    assert "rows of 20 s are kept in place of those of 5 s, 15 s and 20 s" in said
    rates = Expected.of({"x": 100.0, "y": 200.0}, {})
    known = compile_query(PAIRS.format(5, 5, ""), name="q0", streams={"A": 1, "B": 1}, buckets=1, expected=rates)
    assert "(about 6,300 in place of 12,900)" in render_beside(known, [other, third])
    assert "one join" not in render_beside(*(lambda a, b: (a, [b]))(*compiled([PAIRS.format(5, 5, "")] * 2)))
