"""Whom windows wait for is what the job began with, and not what a configuration says by now."""

from __future__ import annotations

from dataclasses import replace

from lowmark.app.job.roster import listing, roster_of_job
from lowmark.app.progress.board import ProgressBoard
from lowmark.query.compile import compile_query
from lowmark.wire.records.verdicts import Complete, WindowSpan
from tests.app.board_feed import completed, go_on, lagging, only, waits

PLAN = compile_query(
    "SELECT srcIP, count(*) [RANGE 10 s] FROM Main GROUP BY srcIP", name="q", streams={"Main": 2}, buckets=1
)
ROSTERS = {"Main": ("a", "b"), "Other": ("c",)}


def told(window: int, *sources: str, generation: int = 1) -> Complete:
    made = completed(PLAN, 0, WindowSpan(window, window), (window + 1) * 10**10)
    return replace(made, covered_by=sources, generation=generation)


def test_a_job_that_has_told_nothing_waits_for_those_that_are_configured() -> None:
    assert roster_of_job(ROSTERS, (), {"z": "Main"}) == ROSTERS


def test_completions_name_those_that_it_waits_for() -> None:
    assert roster_of_job(ROSTERS, {"b", "a", "c"}, {}) == ROSTERS
    assert roster_of_job(ROSTERS, {"a", "c"}, {}) == {"Main": ("a",), "Other": ("c",)}
    assert roster_of_job(ROSTERS, {"z", "b"}, {"z": "Main"}) == {"Main": ("b", "z"), "Other": ()}


def test_one_that_is_configured_since_is_unlisted_and_holds_nothing_up() -> None:
    of = ProgressBoard([PLAN], {"Main": ("a", "b", "new")})
    go_on(of, PLAN, "a", 67, (31, 45))
    go_on(of, PLAN, "b", 22, (31,))
    of.complete(told(1, "a", "b"))
    assert {who for who, _ in waits(of)} == {"b"}
    assert [(at.source, at.state) for at in only(of).sources] == [
        ("a", "promising"), ("b", "promising"), ("new", "unlisted"),
    ]  # fmt: skip


def test_one_that_the_configuration_has_dropped_is_still_waited_for() -> None:
    of = ProgressBoard([PLAN], {"Main": ("a",)})
    of.registered("b", 5, "Main")
    go_on(of, PLAN, "a", 67, (31, 45))
    go_on(of, PLAN, "b", 22)
    of.complete(told(1, "a", "b"))
    assert {who for who, _ in waits(of)} == {"b"}


def test_a_new_generation_waits_for_those_that_are_configured_until_it_tells_otherwise() -> None:
    of = lagging(PLAN, a=(31, 45))
    of.complete(told(1, "a"))
    assert [at.source for at in only(of).sources if at.state == "unlisted"] == ["b"]
    of.complete(told(1, generation=2))
    assert [(at.source, at.state) for at in only(of).sources] == [("a", "promising"), ("b", "promising")]


def test_a_source_is_listed_where_a_query_says_so_that_reads_its_stream() -> None:
    idle = compile_query("SELECT ts FROM Idle", name="idle", streams={"Idle": 1}, buckets=1)
    listed = listing([PLAN, replace(PLAN, name="r"), idle], {"q": frozenset("a"), "r": frozenset("ab")})
    assert [listed(source, "Main") for source in "abc"] == [True, True, False]
    assert listed("a", "Idle") is None
    assert listed("a", "Elsewhere") is None
