"""Text to plan: the passes of query analysis, in order.

    parse        text -> syntax tree                                   syntax, parser
    analyse      names, types, windows, groups -> a relation           analysis, scope, lowering, windowing, grouping
    split        relation -> nodes of the low level, steps above it    split, bucketing
    fingerprint  nodes -> the stage's name                             fingerprint

Every pass is a pure function: equal arguments give equal plans in every process, so that a plan is handed on as its
text.
"""

from __future__ import annotations

from collections.abc import Mapping

from lowmark.query.analysis import analyse, texts
from lowmark.query.correcting import CannotCorrect, merges
from lowmark.query.errors import QueryError
from lowmark.query.expected import UNKNOWN, Expected, check_names
from lowmark.query.fingerprint import fingerprint
from lowmark.query.late import Late
from lowmark.query.notes import notes
from lowmark.query.parser import parse
from lowmark.query.plan import QueryPlan, Stage
from lowmark.query.split import CannotRunYet, split

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
) -> QueryPlan:
    """The plan of a query, or QueryError with the spot in the text.

    `streams`: the streams that are bound, each with its number of sources, called as `link` shows them; None: any name
    is a stream of one source. `buckets`: wanted; a plan whose rows must meet in one place has 1, and a note on why.
    `late`: what becomes of late tuples; corrections that would be wrong are refused. `expected`: what is known of the
    data; UnknownInput where it is said of what the query has not.
    """
    if buckets < 1:
        raise ValueError(f"{buckets} buckets: at least one is needed")
    script = parse(sql)
    check_names(expected, script)
    strings = texts(script, streams)
    answer = analyse(script, sql, streams, strings)
    try:
        halves = split(answer.relation, strings, expected)
    except CannotRunYet as error:
        raise QueryError(f"{error} cannot run yet", sql, script.statements[-1].span) from None
    spread = 1 if halves.reasons else buckets
    stage = Stage(fingerprint(halves.nodes, spread), halves.nodes, spread)
    plan = QueryPlan(
        name=name,
        sql=sql,
        stage=stage,
        steps=halves.steps,
        output=halves.output,
        window=halves.window,
        ordered=answer.ordered,
        notes=notes(halves, buckets),
        late=late,
    )
    if late is Late.CORRECT:
        try:
            merges(plan)
        except CannotCorrect as error:
            message = f'late = "correct" is not for this query: {error.reason}'
            raise QueryError(message, sql, script.statements[-1].span, hint=error.hint) from None
    return plan
