"""Whom windows wait for is what the roster in force says, and not what a configuration says by now."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

import lowmark.app.job.roster as roster_module
from lowmark.app.cli import app
from lowmark.app.config.file import load_config
from lowmark.app.job.names import job_name, may_run
from lowmark.app.job.roster import awaited, listing
from lowmark.app.kafka import source_registry
from lowmark.app.progress.board import ProgressBoard
from lowmark.query.compile import compile_query
from lowmark.wire.kafka.clients import KafkaSettings, KafkaUnavailable
from lowmark.wire.records.rosters import ListedSource, RosterInForce
from lowmark.wire.rows.values import FOREVER
from tests.app.board_feed import NOW, SECOND, go_on, lagging, only, waits

PLAN = compile_query(
    "SELECT srcIP, count(*) [RANGE 10 s] FROM Main GROUP BY srcIP", name="q", streams={"Main": 2}, buckets=1
)


def roster(*members: ListedSource, stream: str = "Main", job: str = "lowmark") -> RosterInForce:
    return RosterInForce(job, stream, 1, members, (), 0)


def states(of: ProgressBoard) -> dict[str, str]:
    return {at.source: at.state for at in only(of).sources}


def test_a_job_that_has_not_begun_waits_for_those_that_are_configured() -> None:
    assert states(lagging(PLAN, a=(31, 45))) == {"a": "promising", "b": "promising"}


def test_one_that_is_configured_since_is_unlisted_and_holds_nothing_up() -> None:
    of = ProgressBoard([PLAN], {"Main": ("a", "b", "new")}, "lowmark")
    go_on(of, PLAN, "a", 67, (31, 45))
    go_on(of, PLAN, "b", 22, (31,))
    of.listed(roster(ListedSource("a"), ListedSource("b")))
    assert {who for who, _ in waits(of)} == {"b"}
    assert states(of) == {"a": "promising", "b": "promising", "new": "unlisted"}


def test_one_that_the_configuration_has_dropped_is_waited_for_until_it_leaves() -> None:
    of = ProgressBoard([PLAN], {"Main": ("a",)}, "lowmark")
    go_on(of, PLAN, "a", 67, (31, 45))
    go_on(of, PLAN, "b", 22)
    of.listed(roster(ListedSource("a"), ListedSource("b", left=(NOW + 10) * SECOND)))
    assert {who for who, _ in waits(of)} == {"b"}
    of.listed(roster(ListedSource("a"), ListedSource("b", left=(NOW - 10) * SECOND)))
    assert states(of) == {"a": "promising"}


def test_one_that_is_excluded_is_shown_and_holds_nothing_up() -> None:
    of = lagging(PLAN, a=(31, 45))
    go_on(of, PLAN, "a", 67)
    assert {who for who, _ in waits(of)} == {"b"}
    of.listed(roster(ListedSource("a"), ListedSource("b", excluded=((22 * SECOND, FOREVER),))))
    assert {who for who, _ in waits(of)} == {"the job"}
    assert states(of) == {"a": "promising", "b": "excluded"}


def test_whether_a_source_is_listed() -> None:
    listed = listing([roster(ListedSource("a")), roster(ListedSource("b", left=5), job="lowmark.q")])
    assert (listed("a", "Main"), listed("b", "Main"), listed("a", "Other")) == (True, False, None)


@pytest.mark.parametrize(
    ("job", "counts"),
    [("lowmark", True), ("lowmark.q", True), ("lowmark.other+q", True), ("lowmark.other", False),
     ("lowmark.0123456789abcdef", True), ("lowmark2", False), ("low", False), ("lowmark2.q", False)],
)  # fmt: skip
def test_the_roster_of_a_job_that_does_not_run_the_query_says_nothing_of_it(job: str, counts: bool) -> None:
    of = lagging(PLAN)
    of.listed(roster(ListedSource("a"), ListedSource("b", excluded=((22 * SECOND, FOREVER),)), job=job))
    assert (states(of)["b"] == "excluded") is counts


def test_the_name_of_a_job_tells_its_queries() -> None:
    assert job_name("lowmark", None) == "lowmark"
    for queries in (["q"], ["b", "q", "a"], ["q", *(f"query{number}" for number in range(50))]):
        assert may_run(job_name("lowmark", queries), "lowmark", "q")
    assert not may_run(job_name("lowmark", ["b"]), "lowmark", "q")


def test_a_broker_that_is_away_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`lowmark sources` says so within ten seconds: each question takes six."""
    asked = list[float]()

    def away(kafka: KafkaSettings, timeout_s: float = 6.0) -> AdminClient:
        asked.append(timeout_s)
        raise KafkaUnavailable("no broker answers")

    for module in (roster_module, source_registry):
        monkeypatch.setattr(module, "admin", away)
    path = tmp_path / "lowmark.toml"
    path.write_text('[kafka]\nbootstrap = "127.0.0.1:1"\n[streams.Main]\nroster = ["a"]\n')
    done = CliRunner().invoke(app, ["sources", "-c", str(path)])
    assert isinstance(done.exception, KafkaUnavailable)
    assert len(asked) == 1


def test_a_change_waits_for_live_sources_that_are_neither_excluded_nor_have_left(tmp_path: Path) -> None:
    path = tmp_path / "lowmark.toml"
    path.write_text(
        '[kafka]\nbootstrap = "127.0.0.1:1"\n[streams.Main]\n[streams.Other]\nroster = ["o*", "other"]\n'
        '[sources.file]\nstream = "Main"\nfile = "x.pcap"\n[queries.q]\nsql = "SELECT ts FROM Main"\n'
    )
    then = load_config(path)
    main = roster(
        ListedSource("here"), ListedSource("gone", left=5), ListedSource("out", excluded=((3, FOREVER),)),
        ListedSource("back", excluded=((3, 9),)), ListedSource("file"),
    )  # fmt: skip
    assert awaited(["Main"], [main], ["Main"], then) == {"here", "back"}
    assert awaited(["Main"], [], ["Main"], then) is None, "the job has not read its roster yet"
    assert awaited(["Main", "Other"], [main], ["Main"], then) == {"here", "back", "other"}
