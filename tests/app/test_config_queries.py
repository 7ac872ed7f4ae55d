"""The plans of a configuration's queries, and which of them share a stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from highlevel.spark.checkpoint.checkpoint import plan_digests
from lowmark.app.capture.reload import check_stages
from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import MOST_EXCHANGING, plan_queries, topics_of
from lowmark.app.config.toml_tables import ConfigError
from lowmark.query.compile import compile_query
from lowmark.query.options import Limits, Vocabulary
from lowmark.query.plan.nodes import Counted

HEAD = """
[kafka]
bootstrap = "127.0.0.1:9092"
[streams.Main]
roster = ["tap"]
"""
QUERY = """
[queries.{name}]
sql = "SELECT srcIP, {calls} [RANGE {minutes} minutes, SLIDE 1 minute] FROM Main GROUP BY srcIP"
"""
PACKETS = QUERY.format(name="packets", calls="count(*)", minutes=5) + 'share = "hosts"\n'
SIZES = QUERY.format(name="sizes", calls="max(len), avg(len)", minutes=1) + 'share = "hosts"\n'
LONGEST = QUERY.format(name="longest", calls="max(len)", minutes=9) + 'share = "hosts"\n'
ALONE = QUERY.format(name="alone", calls="max(len)", minutes=1)


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "lowmark.toml"
    path.write_text(HEAD + text)
    return load_config(path)


def test_queries_of_one_share_have_one_stage_whichever_are_asked_for(tmp_path: Path) -> None:
    config = load(tmp_path, PACKETS + ALONE + SIZES)
    packets, alone, sizes = plan_queries(config)
    assert packets.stage == sizes.stage != alone.stage
    assert plan_queries(config, ["sizes"]) == (sizes,)
    assert sum(".partials." in topic.name for topic in topics_of(config, (packets, alone, sizes))) == 2
    assert plan_queries(load(tmp_path, SIZES + ALONE + PACKETS)) == (sizes, alone, packets)


def test_what_cannot_share_is_refused_with_the_reason(tmp_path: Path) -> None:
    config = load(tmp_path, PACKETS + SIZES.replace("SLIDE 1", "SLIDE 2").replace("RANGE 1", "RANGE 2"))
    with pytest.raises(ConfigError) as caught:
        plan_queries(config, ["packets"])
    assert "queries.sizes.share: it cannot share 'hosts' with packets, since its panes differ. Leave" in str(
        caught.value
    )


@pytest.mark.parametrize(("before", "after", "why"), [
    (PACKETS, PACKETS + SIZES, "since it has share = 'hosts', and so has or had sizes, which changed"),
    (PACKETS + SIZES, PACKETS, "packets would have another stage"),
    (PACKETS + SIZES, PACKETS + SIZES.replace("avg(len)", "min(len)"), "packets would have another stage"),
    (PACKETS, PACKETS + "[job]\nbuckets = 3\n", "job.buckets has changed"),
    (ALONE, ALONE + "[job]\nbuckets = 3\n", "job.buckets has changed"),
])  # fmt: skip
def test_a_query_that_stays_keeps_its_stage(tmp_path: Path, before: str, after: str, why: str) -> None:
    old, new = load(tmp_path, before), load(tmp_path, after)
    with pytest.raises(ConfigError) as caught:
        check_stages(old, plan_queries(old), new, plan_queries(new))
    assert why in str(caught.value)


@pytest.mark.parametrize(("before", "after"), [
    (PACKETS, PACKETS + ALONE),
    (PACKETS + SIZES, LONGEST + SIZES + PACKETS),  # it keeps nothing that others do not
    (PACKETS + SIZES + LONGEST, PACKETS + SIZES),
    (PACKETS, PACKETS + SIZES.replace("hosts", "others")),
    (ALONE, ALONE + 'share = "hosts"\n'),  # its own text has changed
])  # fmt: skip
def test_what_changes_no_stage_of_others_is_taken(tmp_path: Path, before: str, after: str) -> None:
    old, new = load(tmp_path, before), load(tmp_path, after)
    check_stages(old, plan_queries(old), new, plan_queries(new))


def test_a_querys_own_limits_go_before_the_jobs(tmp_path: Path) -> None:
    text = PACKETS + ALONE + "[queries.alone.limits]\ngroups = 7\n[job.limits]\ngroups = 1000\n"
    packets, alone = plan_queries(load(tmp_path, text))
    assert (packets.limits.groups, alone.limits.groups) == (1000, 7)


def test_a_limit_of_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"queries\.alone\.limits: groups is 0: it is 1 or more"):
        load(tmp_path, ALONE + "[queries.alone.limits]\ngroups = 0\n")


def test_a_limit_can_be_raised_on_a_checkpoint(tmp_path: Path) -> None:
    before, after = (plan_queries(load(tmp_path, f"{ALONE}[queries.alone.limits]\ngroups = {n}\n")) for n in (7, 8))
    assert plan_digests(before) == plan_digests(after)


PARTED = """
[queries.parted]
sql = "SELECT srcIP, count(*) [RANGE 5 rows, WA row_num, PA srcIP] FROM Main"
[queries.parted.limits]
expire_idle = "{}"
"""


def test_idleness_is_declared_by_query_and_part_of_its_plan(tmp_path: Path) -> None:
    (plan,) = plan_queries(load(tmp_path, PARTED.format("90 minutes")))
    assert [step.plan.expire for step in plan.steps if isinstance(step.plan, Counted)] == [5400]
    asked = compile_query(plan.sql, name="parted", streams={"Main": 1}, buckets=4,
                          limits=Limits(expire_idle_ns=5400 * 10**9))  # fmt: skip
    assert plan.steps == asked.steps
    assert plan_digests([plan]) != plan_digests(plan_queries(load(tmp_path, PARTED.format("91 minutes"))))


@pytest.mark.parametrize(("text", "why"), [
    (PARTED.format("a while"), r"queries\.parted\.limits: expire_idle: 'a while' is not a length of time, such as"),
    (PARTED.format("0 s"), "expire_idle: '0 s' is not a length of time"),
    (PARTED.format("5 apples"), "expire_idle: '5 apples' is not a length of time"),
    (ALONE + '[queries.alone.limits]\nexpire_idle = "1 hour"\n', "windows over rows and slides by tuple with PA"),
])  # fmt: skip
def test_idleness_that_cannot_be_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        plan_queries(load(tmp_path, text))


def test_a_query_that_ends_is_none_of_a_job(tmp_path: Path) -> None:
    config = load(tmp_path, '[queries.first]\nsql = "SELECT ts FROM Main LIMIT 5"\n')
    with pytest.raises(ConfigError, match="the queries of a job have no end"):
        plan_queries(config)


def test_names_of_columns_are_no_part_of_the_plan(tmp_path: Path) -> None:
    """So a job takes other ones on its checkpoint."""
    config = load(tmp_path, ALONE)
    assert config.queries["alone"].names is Vocabulary.LOWMARK
    named = load(tmp_path, ALONE + 'names = "ecs"')
    assert named.queries["alone"].names is Vocabulary.ECS
    assert plan_digests(plan_queries(named)) == plan_digests(plan_queries(config))


def test_names_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"queries\.alone\.names: 'ECS8' is not one of lowmark, ecs, otel, ipfix"):
        load(tmp_path, ALONE + 'names = "ECS8"')
    both = ALONE.replace("SELECT srcIP,", "SELECT tcp_flags, bit_or(tcp_flags),").replace("BY srcIP", "BY tcp_flags")
    with pytest.raises(
        ConfigError, match=r"queries\.alone\.names: tcp_flags and bit_or_tcp_flags would both be called"
    ):
        plan_queries(load(tmp_path, both + 'names = "ipfix"'))


def test_how_many_sources_a_pattern_stands_for_is_not_known(tmp_path: Path) -> None:
    """So no source numbers the rows of the stream by itself."""
    one = load(tmp_path, "")
    many = load(tmp_path, "").path
    many.write_text(HEAD.replace('["tap"]', '["capture-*", "tap"]'))
    config = load_config(many)
    assert (one.source_count("Main"), config.source_count("Main")) == (1, 2)
    assert config.named_sources("Main") == ("tap",)


LEVELS = (
    "CREATE STREAM levels AS SELECT srcIP, sum(len) AS bytes [RANGE TUMBLING 5 seconds] FROM Main GROUP BY srcIP; "
    "SELECT bytes / 500 AS level, count(*) [RANGE TUMBLING 10 seconds, WA window_end] FROM levels GROUP BY bytes / 500"
)


@pytest.mark.parametrize(("sql", "refused"), [(LEVELS, True), ("SELECT srcIP FROM Main", False)])
def test_buckets_that_all_send_to_each_other_are_limited(tmp_path: Path, sql: str, refused: bool) -> None:
    config = load(tmp_path, f'[queries.q]\nsql = "{sql}"\nbuckets = {MOST_EXCHANGING + 1}\n')
    if not refused:
        assert plan_queries(config)[0].stage.buckets == MOST_EXCHANGING + 1
        return
    with pytest.raises(ConfigError, match=r"queries\.q\.buckets: .* 129 buckets .* 16,641 a round; at most 128"):
        plan_queries(config)
