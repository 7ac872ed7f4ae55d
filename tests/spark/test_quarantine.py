"""Which queries are quarantined, and what a bucket says of them meanwhile."""

from __future__ import annotations

from dataclasses import replace

from highlevel.rosters.roster import Roster
from highlevel.spark.job_spec import JobSpec
from highlevel.spark.quarantine import together
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.plan.shared_joins import shares
from lowmark.query.plan.sharing import share
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.sink_token import Told, decode_told

JOIN = (
    "SELECT M1.ts, M1.srcIP FROM A [RANGE {0} s, WA ts] AS M1, B [RANGE {0} s, WA ts] AS M2 WHERE M1.srcIP = M2.srcIP"
)
EXCHANGED = (
    "SELECT max(c) AS top [RANGE 20 s, WA window_end] FROM "
    "(SELECT proto, count(*) AS c [RANGE 5 s, WA ts] FROM A GROUP BY proto)"
)


def plans(**texts: str) -> list[QueryPlan]:
    made = [compile_query(text, name=name, streams={"A": 1, "B": 1}, buckets=2) for name, text in texts.items()]
    return list(share(made))


def test_queries_whose_joins_run_as_one_stop_together() -> None:
    of = plans(small=JOIN.format(6), middle=JOIN.format(8), large=JOIN.format(10))
    assert [each.queries for each in shares(of)] == [(("small",), ("middle",), ("large",))]
    of += plans(other=JOIN.format(5).replace("srcIP", "destIP"))
    assert together(of, ["small"]) == {"small", "middle", "large"}
    assert together(of, ["other"]) == {"other"}
    assert together(of, []) == frozenset()


def test_a_quarantined_query_keeps_how_far_it_had_come_and_gets_nothing() -> None:
    of = plans(a=EXCHANGED, b=EXCHANGED.replace("max", "min"))
    stage = of[0].stage
    spec = JobSpec(
        job="job", plans=tuple(of), roster=Roster({}, {}), kinds={}, placements={}, generation=1, suppressed={},
        prefix="", parcels="", laws={"a": "law of a", "b": "law of b"},
    )  # fmt: skip
    stopped = replace(spec, quarantined=frozenset({"a"}), paused={("a", 1): Told("law of a", 7)})
    assert [plan.name for plan in spec.readers(stage.fingerprint)] == ["a", "b"]
    assert [plan.name for plan in stopped.readers(stage.fingerprint)] == ["b"]
    at = stopped.position(stage, 1, 50)
    assert at is not None
    assert decode_told(at.metadata) == {"a": Told("law of a", 7), "b": Told("law of b", 50)}
    elsewhere = stopped.position(stage, 0, 50)
    assert elsewhere is not None
    assert decode_told(elsewhere.metadata) == {"b": Told("law of b", 50)}
    exchanges = [plan.exchanges for plan in of]
    assert None not in exchanges
    origins = [Origin(each.fingerprint, "bucket 0", 1, "x") for each in exchanges if each is not None]
    assert [stopped.ignores(origin) for origin in origins] == [True, False]
    assert [spec.ignores(origin) for origin in origins] == [False, False]
