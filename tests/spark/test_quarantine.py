"""What a bucket says of quarantined queries."""

from __future__ import annotations

from dataclasses import replace

from highlevel.rosters.roster import Roster
from highlevel.spark.job_spec import JobSpec
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.plan.sharing import share
from lowmark.wire.kafka.settings import KafkaSettings
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.sink_token import Told

EXCHANGED = (
    "SELECT max(c) AS top [RANGE 20 s, WA window_end] FROM "
    "(SELECT proto, count(*) AS c [RANGE 5 s, WA ts] FROM A GROUP BY proto)"
)


def plans(**texts: str) -> list[QueryPlan]:
    made = [compile_query(text, name=name, streams={"A": 1, "B": 1}, buckets=2) for name, text in texts.items()]
    return list(share(made))


def spec_of(*of: QueryPlan) -> JobSpec:
    return JobSpec(
        job="job", group="job", checkpoint="c", run=1, kafka=KafkaSettings("localhost:9092"),
        transaction_timeout_s=60.0, tasks=2, plans=tuple(of), roster=Roster({}, {}), kinds={},
        placements={}, generation=1, suppressed={},
        prefix="", laws={"a": "law of a", "b": "law of b"},
    )  # fmt: skip


def test_a_quarantined_query_gets_nothing() -> None:
    of = plans(a=EXCHANGED, b=EXCHANGED.replace("max", "min"))
    stage, spec = of[0].stage, spec_of(*of)
    stopped = replace(spec, quarantined=("a",))
    assert [plan.name for plan in spec.readers(stage.fingerprint)] == ["a", "b"]
    assert [plan.name for plan in stopped.readers(stage.fingerprint)] == ["b"]
    at = stopped.position(stage, 1, 50)
    assert at.told == {"b": Told("law of b", 50)}
    exchanges = [plan.exchanges for plan in of]
    assert None not in exchanges
    origins = [Origin(each.fingerprint, "bucket 0", 1, "x") for each in exchanges if each is not None]
    assert [stopped.ignores(origin) for origin in origins] == [True, False]
    assert [spec.ignores(origin) for origin in origins] == [False, False]


def test_a_batch_that_is_written_in_part_is_finished_with_its_queries() -> None:
    of = plans(**{name: EXCHANGED.replace("max", call) for name, call in (("a", "max"), ("b", "min"), ("c", "sum"))})
    key = (of[0].stage.fingerprint, 1)
    spec = spec_of(*of)
    for before in ((), ("b",), ("b", "a")):
        begun = replace(spec, quarantined=before).token(key[0], 7, "d")
        now = replace(spec, quarantined=("b", "a"), unfinished={key: begun})
        assert now.of_batch(*key, 7).quarantined == before
        assert now.of_batch(*key, 7).token(key[0], 7, "d") == begun
        assert now.of_batch(*key, 8) == now
        assert now.of_batch(key[0], 0, 7) == now
    begun = replace(spec, quarantined=("c",)).token(key[0], 7, "d")
    unknown = replace(spec, quarantined=("a",), unfinished={key: begun})
    assert unknown.of_batch(*key, 7) == unknown
