"""Which former stages a capture serves beside the new ones, and for how long."""

from __future__ import annotations

from lowmark.app.capture.overlap import Overlap
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan


def query(name: str, field: str) -> QueryPlan:
    return compile_query(f"SELECT {field}, count(*) [RANGE 10 s] FROM Main GROUP BY {field}", name=name)


def test_former_stages_of_changed_queries_are_served_for_the_overlap() -> None:
    clock = [0.0]
    a, b, kept, gone = query("a", "srcIP"), query("b", "destIP"), query("kept", "proto"), query("gone", "tos")
    first = [a, b, kept, gone]
    second = [query("a", "srcPort"), query("b", "destPort"), kept]
    none = Overlap(lambda: clock[0])
    overlap = none.after(first, second, 10)
    assert overlap.plans == [a, b], "a query that is dropped ends at once, and one that stays has no former stage"
    assert not overlap.is_over

    clock[0] = 4
    third = [query("a", "ttl"), query("b", "destIP"), kept]
    overlap = overlap.after(second, third, 10)
    assert overlap.plans == [a, *second[:2]], "each has its own time, and b reads its former stage again"

    clock[0] = 10
    assert overlap.is_over
    overlap = overlap.after((), third, 0)
    assert overlap.plans == second[:2]
    assert not overlap.is_over
    clock[0] = 14
    assert overlap.is_over
    assert overlap.after((), third, 0).plans == []
    assert overlap.after(third, [kept], 10).plans == []
    assert none.plans == []
