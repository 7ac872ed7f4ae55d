"""Joins of several queries that run as one: each query says what it says alone, and joins and leaves come and go."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from highlevel.progress.records import Batch
from lowmark.query.compile import compile_query
from lowmark.query.explain.sharing import render_beside
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.joins import Scheduling
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.plan.shared_joins import shares
from tests.acceptance.interleaved import packets_of
from tests.acceptance.traffic import Traffic, traffic
from tests.progress.test_graph import Buckets, sent_of

_FROM = "FROM A AS x [RANGE {0} s], B AS y [RANGE {1} s] WHERE x.destIP = y.destIP"
PAIRS = "SELECT {2} x.srcIP, x.ts, y.ts AS u " + _FROM
COUNTS = "SELECT {2} x.destIP, count(*) AS c, max(x.srcIP) [RANGE 10 s, SLIDE 5 s, WA x.ts] " + _FROM
COUNTS += " GROUP BY x.destIP"
MOVED = "SELECT {2} x.srcIP, count(*) AS c [RANGE 10 s, WA x.ts] " + _FROM + " GROUP BY x.srcIP"  # through an exchange

MQT = "/*+ schedule(mqt) */"


def compiled(texts: Iterable[str], buckets: int = 1) -> list[QueryPlan]:
    return [
        compile_query(text, name=f"q{n}", streams={"A": 2, "B": 2}, buckets=buckets) for n, text in enumerate(texts)
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


@given(sent=traffic(), seed=st.integers(0, 2**32), cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)))
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_queries_join_and_leave_a_running_share(sent: Traffic, seed: int, cuts: tuple[float, float]) -> None:
    """The others go on as if nothing had happened, while the one with the largest window stays."""
    small, middle, large = compiled([PAIRS.format(3, 4, ""), COUNTS.format(6, 6, ""), PAIRS.format(9, 8, MQT)])
    counts = {name: len(sources) for name, sources in packets_of(sent).items()}
    small, middle, large = (
        compile_query(plan.sql, name=plan.name, streams=counts, buckets=1) for plan in (small, middle, large)
    )
    roster, records = sent_of(large, sent, seed)
    changing, steady = Buckets((middle, large), roster), Buckets((small, middle, large), roster)
    comes, leaves = sorted(round(cut * len(records)) for cut in cuts)
    for at, (bucket, record) in enumerate(records):
        if at == comes:
            changing.plans = (small, middle, large)
        if at == leaves:
            changing.plans = (small, large)
        changing.take(bucket, record)
        steady.take(bucket, record)
    kept = list(map(ordered, steady.said[large.name]))
    assert list(map(ordered, changing.said[large.name])) == kept
    assert any(isinstance(record, Batch) for _, record in records) or not kept


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
    assert "one join for the windows of q0 (5 s), q1 (15 s) and q2 (20 s), by mqt" in said
    assert "rows of 20 s are kept in place of those of 5 s, 15 s and 20 s" in said
    assert "one join" not in render_beside(*(lambda a, b: (a, [b]))(*compiled([PAIRS.format(5, 5, "")] * 2)))
