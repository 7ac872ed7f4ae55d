"""Compiles query text to a plan: the passes of query analysis, in order (`PASSES`).

Every pass is a pure function of the draft that the earlier passes made. Equal arguments give equal plans in every
process, so the text of a query is enough to know its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lowmark.query.bind.hints import ALGORITHM, BUCKET
from lowmark.query.bind.relations import Relation
from lowmark.query.bind.script import analyse, texts
from lowmark.query.catalog import packet_field
from lowmark.query.explain.notes import notes
from lowmark.query.optimize.idle_partitions import CannotExpire, expiring
from lowmark.query.optimize.join_options import NoSuchJoin, with_options
from lowmark.query.optimize.late_corrections import CannotCorrect, merges
from lowmark.query.optimize.partitioning import NoSuchKey
from lowmark.query.optimize.push_down import pushed
from lowmark.query.optimize.stream_statistics import UNKNOWN, Expected, check_names
from lowmark.query.optimize.window_strategy import chosen
from lowmark.query.options import DEFAULT_JOINS, DEFAULT_LIMITS, DEFAULT_RATES, Joins, Late, Limits, Rates, Strategy
from lowmark.query.parse.errors import QueryError, too_large
from lowmark.query.parse.parser import parse
from lowmark.query.parse.size_limits import TooLarge, placed
from lowmark.query.parse.syntax import Punctuate, Script, Select, Span, walk
from lowmark.query.plan.closings import CONNECTION, DEFAULT_LINGER_NS, TUPLE, CannotPunctuate, with_closings
from lowmark.query.plan.fingerprint import exchanges_of, fingerprint
from lowmark.query.plan.halves import Halves, without_idle_texts
from lowmark.query.plan.nodes import Aggregate, QueryPlan, Stage
from lowmark.query.plan.planner import plan_query
from lowmark.query.plan.steps.join import NothingToPromise

__all__ = ["DEFAULT_BUCKETS", "PASSES", "compile_query"]

DEFAULT_BUCKETS = 16
"""Partitions of a stage whose groups can be distributed."""


@dataclass(frozen=True, slots=True)
class Question:
    """The arguments of `compile_query`."""

    sql: str
    name: str
    streams: Mapping[str, int] | None
    buckets: int
    late: Late
    expected: Expected
    strategy: Strategy
    stored: bool
    limits: Limits
    joins: Joins
    ends: bool


@dataclass(frozen=True, slots=True)
class Draft:
    """The result of the passes so far; each pass fills in or replaces some of the fields."""

    asked: Question
    script: Script | None = None
    strings: tuple[str, ...] = ()  # the query's table of texts (`bind.script.texts`)
    relation: Relation | None = None
    ordered: bool = False  # whether the answer has ORDER BY
    limit: int | None = None  # LIMIT over all rows of the answer
    halves: Halves | None = None
    plan: QueryPlan | None = None

    @property
    def answer(self) -> Span:
        """The span of the statement that is answered, for errors about the whole of it."""
        assert self.script is not None
        return self.script.statements[-1].span

    def error(self, message: str, hint: str | None = None) -> QueryError:
        return QueryError(message, self.asked.sql, self.answer, hint=hint)


def compile_query(
    sql: str,
    *,
    name: str = "query",
    streams: Mapping[str, int] | None = None,
    buckets: int = DEFAULT_BUCKETS,
    late: Late = Late.COUNT,
    expected: Expected = UNKNOWN,
    strategy: Strategy = Strategy.AUTO,
    stored: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    joins: Joins = DEFAULT_JOINS,
    ends: bool = False,
) -> QueryPlan:
    """Compile a query to its plan; raise QueryError with the place in the text if it cannot run.

    `streams`: number of sources of each bound stream, by the name that `link` shows; None: any name is a stream of one
    source. `buckets`: the number wanted; a plan whose rows must all meet has 1, and a note on why. `late`: what happens
    to late tuples; corrections that would be wrong are refused. `expected`: known statistics of the data; UnknownInput
    if they name an input that the query does not have. `strategy`: how sliding windows are evaluated; AUTO takes the
    cheapest. The strategy is not part of the stage. `stored`: whether the runner stores state, as the job does.
    `limits`: bounds on the state that no window end removes. `joins`: memory of joins without windows. `ends`:
    whether the runner may stop before its streams end; if not, LIMIT over all rows is refused.
    """
    if buckets < 1:
        raise ValueError(f"{buckets} buckets: at least one is needed")
    draft = Draft(Question(sql, name, streams, buckets, late, expected, strategy, stored, limits, joins, ends))
    try:
        for each in PASSES:
            draft = each(draft)
    except TooLarge as error:
        raise too_large(error, sql, draft.answer) from None
    assert draft.plan is not None
    return draft.plan


def parse_text(draft: Draft) -> Draft:
    """Parse the text to a syntax tree and the table of its texts."""
    asked = draft.asked
    script = parse(asked.sql)
    check_names(asked.expected, script, asked.joins.scrambling)
    return replace(draft, script=script, strings=texts(script, asked.streams))


def bind_names(draft: Draft) -> Draft:
    """Turn the syntax tree into a relation: resolve names, types, windows, groups and joins."""
    assert draft.script is not None
    bound = analyse(draft.script, draft.asked.sql, draft.asked.streams, draft.strings)
    if bound.limit is not None and not draft.asked.ends:
        hint = "`lowmark query` answers it; in a job LIMIT is for ORDER BY within a window"
        message = "LIMIT ends a query with its first rows, and the queries of a job have no end"
        raise QueryError(message, draft.asked.sql, bound.limit.span, hint=hint)
    limit = None if bound.limit is None else bound.limit.value
    return replace(draft, relation=bound.relation, ordered=bound.ordered, limit=limit)


def push_down(draft: Draft) -> Draft:
    """Move conditions as close to the capture as possible, and find the keys of joins."""
    assert draft.relation is not None
    with placed(draft.answer):
        return replace(draft, relation=pushed(draft.relation))


def plan_steps(draft: Draft) -> Draft:
    """Turn the relation into the nodes of capture processes and the steps of a bucket. This pass decides which keys
    choose the bucket, where rows change it, and the order in which joins probe."""
    assert draft.relation is not None
    asked = draft.asked
    exchanging = asked.name if asked.buckets > 1 and asked.late is not Late.CORRECT else None
    try:
        with placed(draft.answer):
            halves = plan_query(draft.relation, draft.strings, asked.expected, exchanging, asked.late is Late.EMIT)
    except NoSuchKey as error:
        message = f"{BUCKET} names fields that are equal in all inputs of the join"
        raise QueryError(message, asked.sql, error.span, error.choices) from None
    except NothingToPromise as error:
        message = f"{ALGORITHM} has no effect here: promises about values help only joins with an equality"
        raise QueryError(message, asked.sql, error.span or draft.answer) from None
    return replace(draft, halves=without_idle_texts(halves))


def bound_joins(draft: Draft) -> Draft:
    """Give joins the memory and the costs that the options name."""
    assert draft.halves is not None
    try:
        steps = with_options(draft.halves.steps, draft.asked.joins)
    except NoSuchJoin as error:
        raise draft.error(f"{error}, and this query has none", error.hint) from None
    return replace(draft, halves=replace(draft.halves, steps=steps))


def punctuate(draft: Draft) -> Draft:
    """Have sources promise the values that PUNCTUATE ON names, and aggregates use it."""
    assert draft.halves is not None
    assert draft.script is not None
    answer, text = draft.script.statements[-1], draft.asked.sql
    asked = answer.punctuate if isinstance(answer, Select) else None
    for node in walk(draft.script):
        if isinstance(node, Punctuate) and node is not asked:
            hint = "put it behind the last SELECT: it is about the packets of all streams that the query reads"
            raise QueryError("PUNCTUATE ON ends a query, and stands here in a part of it", text, node.span, hint=hint)
    if asked is None:
        return draft
    linger_ns = DEFAULT_LINGER_NS if asked.linger is None else asked.linger.value_ns
    try:
        halves = draft.halves
        nodes, steps = with_closings(halves.nodes, halves.steps, _connection(asked, text), linger_ns)
    except CannotPunctuate as error:
        hint = "for example SELECT conn, count(*) [RANGE 10 minutes, SLIDE 10 minutes, WA ts] FROM Main GROUP BY conn"
        raise QueryError(f"PUNCTUATE ON has no effect: {error}", text, asked.span, hint=hint) from None
    return replace(draft, halves=replace(halves, nodes=nodes, steps=steps))


def _connection(asked: Punctuate, text: str) -> tuple[str, ...]:
    """The fields of packets that PUNCTUATE ON names."""
    choices = ("conn", ", ".join(TUPLE))
    names: list[str] = []
    for ref in asked.names:
        field = packet_field(ref.name.text) if ref.input is None else None
        if ref.input is None and ref.name.text.casefold() == "conn":
            names += CONNECTION
        elif field is not None and field.name in TUPLE:
            names.append(field.name)
        else:
            raise QueryError("PUNCTUATE ON names a connection, or one direction of it", text, ref.span, choices)
    for fields in (CONNECTION, TUPLE):
        if sorted(names) == sorted(fields):
            return fields
    message = "PUNCTUATE ON names a whole connection, or one direction of it: all five fields"
    raise QueryError(message, text, asked.span, choices)


def expire_idle_partitions(draft: Draft) -> Draft:
    """Let steps that count tuples for values of PA drop idle values, if `limits` asks for that."""
    assert draft.halves is not None
    idle_ns = draft.asked.limits.expire_idle_ns
    if idle_ns is None:
        return draft
    try:
        return replace(draft, halves=replace(draft.halves, steps=expiring(draft.halves.steps, idle_ns)))
    except CannotExpire:
        message = "expire_idle is for windows over rows and slides by tuple with PA, and this query has none"
        hint = "other windows drop a value when they close; limits.groups bounds the state that stays"
        raise draft.error(message, hint) from None


def name_stage(draft: Draft) -> Draft:
    """Assemble the plan from nodes and steps. The stage's name depends on everything that decides its partials."""
    assert draft.halves is not None
    asked, halves = draft.asked, draft.halves
    spread = 1 if halves.reasons else asked.buckets
    stage = Stage(fingerprint(halves.nodes, spread), halves.nodes, spread)
    plan = QueryPlan(
        name=asked.name,
        sql=asked.sql,
        stage=stage,
        steps=halves.steps,
        output=halves.output,
        window=halves.window,
        ordered=draft.ordered,
        notes=notes(halves, asked.buckets, asked.limits, draft.limit is not None),
        limit=draft.limit,
        late=asked.late,
        strategy=asked.strategy,
        rates=DEFAULT_RATES,
        limits=asked.limits,
        exchanges=exchanges_of(halves.steps, halves.exchanges, stage, asked.name),
    )
    return replace(draft, plan=plan)


def choose_window_strategies(draft: Draft) -> Draft:
    """Give each windowed aggregate the strategy asked for, or the cheapest. The plan keeps its name: a strategy changes
    neither partials nor exchanges."""
    assert draft.plan is not None
    asked, plan = draft.asked, draft.plan
    tuples = asked.expected.together({stream for node in plan.stage.nodes for stream in node.streams})
    groups = asked.expected.groups or DEFAULT_RATES.groups
    rates = Rates(tuples=tuples or DEFAULT_RATES.tuples, groups=groups, stored=asked.stored)
    strategies = chosen(plan.steps, asked.strategy, rates)
    if asked.strategy is not Strategy.AUTO and not strategies:
        raise draft.error(
            f'strategy = "{asked.strategy.value}" is for sliding and tumbling windows, and this query has none'
        )
    steps = list(plan.steps)
    for number, strategy in strategies.items():
        aggregate = steps[number].plan
        assert isinstance(aggregate, Aggregate)
        if aggregate.closes and strategy is not Strategy.PANED:
            raise draft.error(
                f'strategy = "{strategy.value}" holds groups until their window ends, and PUNCTUATE ON emits them '
                "earlier",
                "leave the strategy out, or PUNCTUATE ON",
            )
        steps[number] = replace(steps[number], plan=replace(aggregate, strategy=strategy))
    return replace(draft, plan=replace(plan, steps=tuple(steps), rates=rates))


def check_corrections(draft: Draft) -> Draft:
    """Raise an error if late tuples must correct the results and the corrections would be wrong."""
    assert draft.plan is not None
    if draft.asked.late is not Late.CORRECT:
        return draft
    try:
        merges(draft.plan)
    except CannotCorrect as error:
        raise draft.error(f'late = "correct" is not for this query: {error.reason}', error.hint) from None
    return draft


PASSES: tuple[Callable[[Draft], Draft], ...] = (
    parse_text,
    bind_names,
    push_down,
    plan_steps,
    bound_joins,
    punctuate,
    expire_idle_partitions,
    name_stage,
    choose_window_strategies,
    check_corrections,
)
