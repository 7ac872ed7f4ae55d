"""Text to plan: the passes of query analysis, in order.

    parse        text -> syntax tree                                   syntax, parser
    analyse      names, types, windows, groups -> a relation           analysis, scope, lowering, windowing, grouping
    split        relation -> nodes of the low level, steps above it    split, bucketing
    fingerprint  nodes -> the stage's name                             fingerprint

Every pass is a pure function: equal arguments give equal plans in every process, so that a plan is handed on as its
text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lowmark.query.analysis import analyse, texts
from lowmark.query.bucketing import NoSuchKey
from lowmark.query.correcting import CannotCorrect, merges
from lowmark.query.errors import QueryError, too_large
from lowmark.query.expected import UNKNOWN, Expected, check_names
from lowmark.query.expiring import CannotExpire, expiring
from lowmark.query.fingerprint import exchanges_of, fingerprint
from lowmark.query.hints import BUCKET
from lowmark.query.late import Late
from lowmark.query.limits import DEFAULT_LIMITS, Limits
from lowmark.query.notes import notes
from lowmark.query.parser import parse
from lowmark.query.plan import Aggregate, Node, QueryPlan, Stage, Step
from lowmark.query.sizelimits import TooLarge, placed
from lowmark.query.split import split
from lowmark.query.strategy import DEFAULT_RATES, Rates, Strategy
from lowmark.query.weighing import chosen

__all__ = ["DEFAULT_BUCKETS", "compile_query"]

DEFAULT_BUCKETS = 16
"""Partitions of a stage whose groups can be spread."""


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
    ends: bool = False,
) -> QueryPlan:
    """The plan of a query, or QueryError with the spot in the text.

    `streams`: the streams that are bound, each with its number of sources, called as `link` shows them; None: any name
    is a stream of one source. `buckets`: wanted; a plan whose rows must meet in one place has 1, and a note on why.
    `late`: what becomes of late tuples; corrections that would be wrong are refused. `expected`: what is known of the
    data; UnknownInput where it is said of what the query has not. `strategy`: how sliding windows are evaluated; AUTO:
    as costs least. It is no part of the stage. `stored`: where it runs state is stored, as in the job.
    `limits`: on what it keeps for ever, and what it lets go of. `ends`: where it runs it may end before its streams do:
    LIMIT of all rows is refused elsewhere.
    """
    if buckets < 1:
        raise ValueError(f"{buckets} buckets: at least one is needed")
    script = parse(sql)
    check_names(expected, script)
    strings = texts(script, streams)
    try:
        answer = analyse(script, sql, streams, strings)
        if answer.limit is not None and not ends:
            hint = "`lowmark query` answers it; in a job LIMIT is for ORDER BY within a window"
            message = "LIMIT ends a query with its first rows, and the queries of a job have no end"
            raise QueryError(message, sql, answer.limit.span, hint=hint)
        exchanging = name if buckets > 1 and late is not Late.CORRECT else None
        with placed(script.statements[-1].span):
            halves = split(answer.relation, strings, expected, exchanging, late is Late.EMIT)
    except TooLarge as error:
        raise too_large(error, sql, script.statements[-1].span) from None
    except NoSuchKey as error:
        message = f"{BUCKET} names fields that are equal in all inputs of the join"
        raise QueryError(message, sql, error.span, error.choices) from None
    spread = 1 if halves.reasons else buckets
    rates = _rates(expected, halves.nodes, stored)
    if limits.expire_idle_ns is not None:
        try:
            halves = replace(halves, steps=expiring(halves.steps, limits.expire_idle_ns))
        except CannotExpire:
            message = "expire_idle is for windows over rows and slides by tuple with PA, and this query has none"
            hint = "what other windows keep of a value goes when they close; limits.groups bounds what does not"
            raise QueryError(message, sql, script.statements[-1].span, hint=hint) from None
    strategies = chosen(halves.steps, strategy, rates)
    if strategy is not Strategy.AUTO and not strategies:
        message = f'strategy = "{strategy.value}" is for sliding and tumbling windows, and this query has none'
        raise QueryError(message, sql, script.statements[-1].span)
    stage = Stage(fingerprint(halves.nodes, spread), halves.nodes, spread)
    plan = QueryPlan(
        name=name,
        sql=sql,
        stage=stage,
        steps=tuple(_with(step, strategies.get(number)) for number, step in enumerate(halves.steps)),
        output=halves.output,
        window=halves.window,
        ordered=answer.ordered,
        notes=notes(halves, buckets, limits, answer.limit is not None),
        limit=None if answer.limit is None else answer.limit.value,
        late=late,
        strategy=strategy,
        rates=rates,
        limits=limits,
        exchanges=exchanges_of(halves.steps, halves.exchanges, stage, name),
    )
    if late is Late.CORRECT:
        try:
            merges(plan)
        except CannotCorrect as error:
            message = f'late = "correct" is not for this query: {error.reason}'
            raise QueryError(message, sql, script.statements[-1].span, hint=error.hint) from None
    return plan


def _rates(expected: Expected, nodes: Iterable[Node], stored: bool) -> Rates:
    tuples = expected.together({stream for node in nodes for stream in node.streams})
    groups = expected.groups or DEFAULT_RATES.groups
    return Rates(tuples=tuples or DEFAULT_RATES.tuples, groups=groups, stored=stored)


def _with(step: Step, strategy: Strategy | None) -> Step:
    if strategy is None or not isinstance(step.plan, Aggregate):
        return step
    return replace(step, plan=replace(step.plan, strategy=strategy))
