"""The queries of a bucket in one graph: equal steps run once, state belongs to steps, failures to the queries fed."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from highlevel.build import Build, build
from highlevel.interface import Operator, Out, Space, State, Words
from highlevel.limits import GroupLimit, LimitReached
from highlevel.operators.finish import FinishOperator
from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Forward, Outcome, Output, ResultRows
from highlevel.progress.records import Arrival, Batch, Record
from highlevel.rosters.roster import Roster
from highlevel.scheduler import IN_ORDER, Schedulable, Scheduler
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.options import Joins, Limits
from lowmark.query.plan.fingerprint import step_digests
from lowmark.query.plan.nodes import Aggregate, Finish, Join, QueryPlan, StepPlan
from lowmark.query.plan.sharing import share
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import Complete, Reason
from tests.acceptance.bucketrun import records_of
from tests.acceptance.interleaved import packets_of
from tests.acceptance.test_shared import sets
from tests.acceptance.traffic import Traffic, traffic

GROUPED = "SELECT srcIP, count(*) AS c [RANGE {}, SLIDE 5 s] FROM A GROUP BY srcIP"
_INNER = "(SELECT proto, count(*) AS c [RANGE 5 s, WA ts] FROM A GROUP BY proto)"
_BOTH = "A [RANGE 5 s, WA ts] AS M1, B [RANGE 2 s, WA ts] AS M2 WHERE M1.destIP = M2.destIP"
DEFERRED = (
    GROUPED.format("10 s") + " ORDER BY c DESC LIMIT 2",
    f"SELECT M1.srcIP, count(*) AS c [RANGE 10 s, WA M1.ts] FROM {_BOTH} GROUP BY M1.srcIP",
    f"SELECT max(c) AS top, total(sum(c)) AS t [RANGE 20 s, WA window_end] FROM {_INNER}",
    "SELECT ts, srcIP FROM A WHERE len > 100",
)
ROSTER = Roster.of({"A": ("A-0",)})
SENT = Traffic(7, (("A", 120),), 3, True)


def compiled(name: str, text: str, buckets: int = 2) -> QueryPlan:
    return compile_query(text, name=name, streams={"A": 1, "B": 1}, buckets=buckets)


def plain(output: Output) -> object:
    return (output.window, output.rows.tolist()) if isinstance(output, ResultRows) else replace(output)


class Buckets:
    """The buckets of a stage, over bytes: each record is a micro-batch, and what goes into exchanges comes at once."""

    def __init__(
        self, plans: Sequence[QueryPlan], roster: Roster = ROSTER, build: Build = build,
        scheduler: Scheduler = IN_ORDER,
    ) -> None:  # fmt: skip
        self.scheduler = scheduler
        self.stage = plans[0].stage
        self.plans, self.roster, self.build = tuple(plans), roster, build
        self.stores = [MemoryByteStore() for _ in range(self.stage.buckets)]
        self.said: dict[str, list[object]] = defaultdict(list)
        self.outputs: dict[str, list[list[Output]]] = defaultdict(lambda: [[] for _ in self.stores])  # by bucket
        self.position = 0

    def take(self, bucket: int, record: Record) -> None:
        coming = [(bucket, record)]
        while coming:
            at, record = coming.pop(0)
            state = PiecewiseState(self.stores[at], self.stage.fingerprint)
            driver = BucketDriver(self.stage, self.plans, at, state, self.roster, 1, self.build, self.scheduler)
            driver.take(record, Arrival(self.position))
            self.position += 1
            outcome: Outcome = driver.flush()
            state.commit()
            for output in outcome.outputs:
                if isinstance(output, Forward):
                    coming.append((output.partition, output.record))
                else:
                    self.said[output.query].append((at, plain(output)))
                    self.outputs[output.query][at].append(output)

    def steps(self, plan: QueryPlan) -> list[dict[tuple[str, int], bytes]]:
        """Of each bucket, the state of the steps of a query."""
        names = tuple(f"step.{digest}." for digest in step_digests(plan))
        return [{key: piece for key, piece in of.pieces.items() if key[0].startswith(names)} for of in self.stores]


def sent_of(plan: QueryPlan, sent: Traffic, seed: int, whole: bool = False) -> tuple[Roster, list[tuple[int, Record]]]:
    """The sources, and their records by bucket, in any interleaving; unless `whole`, one batch may be lost."""
    random, streams = Random(seed), packets_of(sent)
    lanes = [
        [(bucket, record) for record in records]
        for stream, sources in streams.items()
        for rank, packets in enumerate(sources)
        for node in plan.stage.nodes
        if stream in node.streams
        for bucket, records in enumerate(records_of(plan, node, stream, rank, packets, random))
    ]
    turns = [number for number, lane in enumerate(lanes) for _ in lane]
    random.shuffle(turns)
    queues = [iter(lane) for lane in lanes]
    mixed = [next(queues[turn]) for turn in turns]
    batches = [at for at, (_, record) in enumerate(mixed) if isinstance(record, Batch)]
    if batches and not whole and random.random() < 0.5:
        del mixed[random.choice(batches)]
    read = {stream for node in plan.stage.nodes for stream in node.streams}
    names = {
        stream: tuple(f"{stream}-{rank}" for rank in range(len(sources)))
        for stream, sources in streams.items()
        if stream in read
    }
    return Roster.of(names), mixed


def take_all(driver: BucketDriver, records: Sequence[tuple[int, Record]]) -> None:
    for position, (_, record) in enumerate(records):
        driver.take(record, Arrival(position))


@given(texts=sets(), sent=traffic(), seed=st.integers(0, 2**32))
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_queries_together_say_what_each_says_alone(texts: list[str], sent: Traffic, seed: int) -> None:
    """Also two of the same text, and whatever is lost."""
    counts = {name: len(sources) for name, sources in packets_of(sent).items()}
    texts = [*texts, texts[0]]
    plans = share([compile_query(text, name=f"q{n}", streams=counts, buckets=2) for n, text in enumerate(texts)])
    roster, records = sent_of(plans[0], sent, seed)
    together = Buckets(plans, roster)
    alone = {plan.name: Buckets((plan,), roster) for plan in plans}
    for bucket, record in records:
        for each in (together, *alone.values()):
            each.take(bucket, record)
    for name, each in alone.items():
        assert together.said[name] == each.said[name], name


@given(texts=sets(), sent=traffic(), seed=st.integers(0, 2**32), share_of=st.floats(0, 1))
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_those_that_are_left_say_what_all_would_have_said(
    texts: list[str], sent: Traffic, seed: int, share_of: float
) -> None:
    """At some moment a query is quarantined."""
    counts = {name: len(sources) for name, sources in packets_of(sent).items()}
    plans = share([compile_query(text, name=f"q{n}", streams=counts, buckets=2) for n, text in enumerate(texts)])
    left = [plan for plan in plans if plan.name != "q0"]
    roster, records = sent_of(plans[0], sent, seed)
    fewer, whole = Buckets(plans, roster), Buckets(plans, roster)
    for number, (bucket, record) in enumerate(records):
        if number == int(share_of * len(records)):
            fewer.plans = tuple(left)
        fewer.take(bucket, record)
        whole.take(bucket, record)
    for plan in left:
        assert fewer.said[plan.name] == whole.said[plan.name], plan.name


def test_a_bucket_without_queries_takes_records_and_has_ended() -> None:
    roster, records = sent_of(compiled("q", GROUPED.format("10 s"), buckets=1), SENT, 1, whole=True)
    stage = compiled("q", GROUPED.format("10 s"), buckets=1).stage
    driver = BucketDriver(stage, (), 0, MemoryState(), roster, 1)
    take_all(driver, records)
    assert driver.flush().outputs == ()
    assert driver.progress().ended


def test_equal_steps_are_one_and_run_once() -> None:
    built: list[StepPlan] = []

    def counted(plan: StepPlan, limit: GroupLimit) -> Operator:
        built.append(plan)
        return build(plan, limit)

    texts = [GROUPED.format("10 s"), GROUPED.format("10 s") + " HAVING count(*) > 2", GROUPED.format("20 s")]
    plans = [compiled(f"q{n}", text) for n, text in enumerate(texts)]
    assert len({plan.stage for plan in plans}) == 1
    BucketDriver(plans[0].stage, tuple(plans), 0, MemoryState(), ROSTER, 1, counted)
    assert sum(isinstance(plan, Aggregate) for plan in built) == 2
    assert sum(isinstance(plan, Finish) for plan in built) == 3


def test_a_digest_tells_steps_apart_by_all_that_shapes_their_rows() -> None:
    texts = [
        GROUPED.format("10 s"), GROUPED.format("15 s"), GROUPED.format("10 s").replace("A G", "B G"),
        "SELECT srcIP, first(len) AS c [RANGE 10 s, SLIDE 5 s] FROM A GROUP BY srcIP",
    ]  # fmt: skip
    first = {
        (plan.stage.fingerprint, step_digests(plan)[0])
        for plan in (compiled("q", text) for text in dict.fromkeys(texts))
    }
    assert len(first) == len(texts)
    plan = compiled("q", GROUPED.format("10 s"))
    assert step_digests(plan) == step_digests(replace(plan, name="other", sql="", limits=Limits(groups=7)))
    one, other = share([plan, compiled("r", GROUPED.format("10 s").replace("count(*)", "sum(len)"))])
    assert step_digests(one) != step_digests(plan) != step_digests(other), "they read their nodes through views"


def test_a_query_that_comes_goes_or_is_renamed_leaves_the_others_their_state() -> None:
    sent = SENT
    stays = compiled("stays", GROUPED.format("10 s") + " HAVING count(*) > 1")
    goes, comes = compiled("goes", GROUPED.format("20 s")), compiled("comes", GROUPED.format("10 s"))
    roster, records = sent_of(stays, sent, 3)
    changing, alone = Buckets((stays, goes), roster), Buckets((stays,), roster)
    for number, (bucket, record) in enumerate(records):
        if number == len(records) // 2:
            before = changing.steps(stays)
            assert any(before)
            changing.plans = (comes, replace(goes, name="renamed"), stays)
        changing.take(bucket, record)
        alone.take(bucket, record)
    assert changing.said["stays"] == alone.said["stays"]
    assert changing.steps(stays) == alone.steps(stays)


def test_what_one_query_cannot_compute_is_not_said_of_one_that_shares_the_step_below() -> None:
    text = "SELECT srcIP, sum(len) AS s [RANGE 10 s, WA ts] FROM A GROUP BY srcIP"
    both = text + " HAVING sum(len) * 4000000000000000000 > 0"
    above = f"SELECT max(s) AS top [RANGE 20 s, WA window_end] FROM ({both})"
    plans = [compiled(name, sql, 1) for name, sql in (("above", above), ("lossy", both), ("whole", text))]
    assert len({step_digests(plan)[0] for plan in plans}) == 1
    roster, records = sent_of(plans[0], SENT, 3, whole=True)
    driver = BucketDriver(plans[0].stage, tuple(plans), 0, MemoryState(), roster, 1)
    take_all(driver, records)
    reasons: dict[str, set[Reason]] = defaultdict(set)
    for each in driver.flush().outputs:
        if isinstance(each, Complete):
            reasons[each.query] |= each.verdict.reasons
    assert reasons == {"whole": set(), "lossy": {Reason.OVERFLOW}, "above": {Reason.OVERFLOW}}


class _Failing(FinishOperator):
    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        raise ZeroDivisionError


def test_a_failure_is_attributed_to_the_queries_that_read_the_operator() -> None:
    texts = {"good": "", "bad": " HAVING count(*) > 0", "too": " HAVING count(*) > 0"}
    plans = [compiled(name, GROUPED.format("10 s") + ends, buckets=1) for name, ends in texts.items()]

    def failing(plan: StepPlan, limit: GroupLimit) -> Operator:
        return _Failing(plan) if isinstance(plan, Finish) and plan.having is not None else build(plan, limit)

    roster, records = sent_of(plans[0], SENT, 1)
    driver = BucketDriver(plans[0].stage, tuple(plans), 0, MemoryState(), roster, 1, failing)
    assert driver.failed == ()
    with pytest.raises(ZeroDivisionError):
        take_all(driver, records)
    assert driver.failed == ("bad", "too")


def test_the_least_limit_of_a_step_holds_and_names_its_query() -> None:
    text = "SELECT srcIP, count(*) AS c [RANGE ALL, SLIDE 5 s] FROM A GROUP BY srcIP"
    wide, narrow = compiled("wide", text, buckets=1), compiled("narrow", text, buckets=1)
    plans = (wide, replace(narrow, limits=Limits(groups=1)))
    roster, records = sent_of(wide, SENT, 1)
    driver = BucketDriver(wide.stage, plans, 0, MemoryState(), roster, 1)
    with pytest.raises(LimitReached, match="query narrow: more than 1 "):
        take_all(driver, records)


class Deferring:
    """Does nothing until it works: a unit is one call of the operator that it stands for."""

    WAITING: Space[list[tuple[int, object]]] = Space("deferred", pickle.dumps, pickle.loads)

    def __init__(self, inner: Operator) -> None:
        self._inner = inner

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        self._defer((port, rows.copy()), state)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        self._defer((port, promise), state)

    def _defer(self, call: tuple[int, object], state: State) -> None:
        state.put(self.WAITING, 0, [*(state.get(self.WAITING, 0) or []), call])

    def work(self, state: State, out: Out, budget: int) -> int:
        waiting = state.get(self.WAITING, 0) or []
        state.put(self.WAITING, 0, waiting[budget:])
        for port, what in waiting[:budget]:
            take = self._inner.on_promise if isinstance(what, Promise) else self._inner.on_batch
            take(port, what, state, out)
        return len(waiting[budget:])


class Whimsical:
    """Any step, a few units at a time."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lefts: set[int | None] = set()

    def turn(self, waiting: Sequence[Schedulable]) -> tuple[int, int]:
        self.lefts |= {each.left for each in waiting}
        return self.random.randrange(len(waiting)), self.random.randint(1, 3)


@given(sent=traffic(), seed=st.integers(0, 2**32), text=st.sampled_from(DEFERRED))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_deferred_work_in_small_portions_changes_nothing(sent: Traffic, seed: int, text: str) -> None:
    streams = packets_of(sent)
    counts = {name: len(streams.get(name, ())) or 1 for name in "AB"}
    plan = compile_query(text, name="q", streams=counts, buckets=2)
    roster, records = sent_of(plan, sent, seed)
    roster = Roster.of({name: tuple(f"{name}-{rank}" for rank in range(count)) for name, count in counts.items()})
    scheduler = Whimsical(Random(seed))
    deferring = Buckets((plan,), roster, lambda step, limit: Deferring(build(step, limit)), scheduler)
    plain = Buckets((plan,), roster)
    for bucket, record in records:
        deferring.take(bucket, record)
        plain.take(bucket, record)
    assert deferring.said == plain.said


def test_a_scheduler_is_told_what_is_left() -> None:
    plan = compiled("q", GROUPED.format("10 s"), buckets=1)
    roster, records = sent_of(plan, SENT, 1)
    scheduler = Whimsical(Random(1))
    driver = BucketDriver(
        plan.stage, (plan,), 0, MemoryState(), roster, 1, lambda step, limit: Deferring(build(step, limit)), scheduler
    )
    take_all(driver, records)
    assert None in scheduler.lefts
    assert max(left or 0 for left in scheduler.lefts) > 0


def test_a_join_that_queries_share_is_within_the_least_of_their_limits() -> None:
    built: list[StepPlan] = []

    def counted(plan: StepPlan, limit: GroupLimit) -> Operator:
        built.append(plan)
        return build(plan, limit)

    roster = Roster.of({"A": ("A-0",), "B": ("B-0",)})
    text, limits = "SELECT A.len, B.len FROM A, B WHERE A.ts = B.ts", (None, 3, 2)
    plans = [
        compile_query(text, name=f"q{n}", streams={"A": 1, "B": 1}, buckets=1, joins=Joins(limit_mib=limit))
        for n, limit in enumerate(limits)
    ]
    BucketDriver(plans[0].stage, tuple(plans), 0, MemoryState(), roster, 1, counted)
    assert [plan.oblivious.bound for plan in built if isinstance(plan, Join) and plan.oblivious] == [2 << 20]
