"""Queries to plans, and queries that cannot be: golden files, and what holds of every plan."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lowmark.query.compile import compile_query
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.nodes import (
    Aggregate,
    Counted,
    Finish,
    Join,
    NodeInput,
    QueryPlan,
    Reduce,
    Send,
    StepPlan,
    Totals,
)
from lowmark.wire.rows.schema import Schema
from tests.query import golden

ACCEPTANCE = Path(__file__).parents[3] / "shared" / "queries"
PLANS = [*golden.read("plans.txt"), *golden.read("joins.txt")]
REFUSALS = [*golden.read("refusals.txt"), *golden.read("joinrefusals.txt")]


def by_head(block: golden.Block) -> str:
    return block.head


@pytest.mark.parametrize("block", PLANS, ids=by_head)
def test_plan(block: golden.Block) -> None:
    assert golden.plan_of(block) == block.result


@pytest.mark.parametrize("block", REFUSALS, ids=by_head)
def test_refused(block: golden.Block) -> None:
    assert golden.refusal_of(block) == block.result


@pytest.mark.parametrize("block", PLANS, ids=by_head)
def test_schemas_fit(block: golden.Block) -> None:
    assert_sound(compile_query(block.sql, streams=block.streams))


def _input(plan: StepPlan, port: int) -> Schema:
    match plan:
        case Join(inputs=inputs):
            return inputs[port].schema
        case Totals(input=parts, rows=rows):
            return (parts, rows)[port]
    return plan.input


def _output(plan: StepPlan) -> Schema:
    match plan:
        case Reduce(reduction=reduction):
            return reduction.schema
        case Send(input=schema):
            return schema
    return plan.output


def assert_sound(plan: QueryPlan) -> None:
    """Every input of a step has the schema that the step expects; the last step gives the answer."""
    exchanges = () if plan.exchanges is None else plan.exchanges.each
    nodes = {node.name: node.reduction.schema for node in (*plan.stage.nodes, *(one.node for one in exchanges))}
    outputs = []
    for step in plan.steps:
        for number, source in enumerate(step.inputs):
            schema = nodes[source.node] if isinstance(source, NodeInput) else outputs[source.step]
            expected = _input(step.plan, step.port(number))
            assert schema == expected
        outputs.append(_output(step.plan))
        if isinstance(step.plan, Aggregate):
            assert len(step.plan.output) == len({*step.plan.output.names})
        if isinstance(step.plan, Finish) and (step.plan.totals or step.plan.order or step.plan.distinct):
            assert step.plan.within or step.plan.input.names[:2] == ("window_start", "window_end")
            counted = [at.plan for at in plan.steps if isinstance(at.plan, Counted)]
            within = counted and all(item.partition for item in counted)
            assert plan.stage.buckets == 1 or within or (not step.plan.totals and (exchanges or step.plan.distinct))
    assert outputs[-1] == plan.output
    for node in plan.stage.nodes:
        assert {*node.bucket_by} <= {key.name for key in node.reduction.keys}
        assert node.bucket_by or plan.stage.buckets == 1
    united = len(plan.steps[-1].inputs) > 1  # members of a union lie by keys of their own
    assert exchanges or united or len({node.bucket_by and len(node.bucket_by) for node in plan.stage.nodes}) == 1


def test_unknown_stream_is_told_when_streams_are_bound() -> None:
    with pytest.raises(QueryError) as caught:
        compile_query("SELECT ts FROM Mian", streams={"Main": 1})
    assert caught.value.expected == ("Main",)
    assert compile_query("SELECT ts FROM mAIN", streams={"Main": 1}).stage.nodes[0].streams == ("Main",)


def test_expressions_cannot_grow_without_bounds() -> None:
    doubled = "".join(f"CREATE STREAM s{i + 1} AS SELECT ts, x + x AS x FROM s{i};\n" for i in range(40))
    deep = "".join(f"CREATE STREAM s{i + 1} AS SELECT ts, -x AS x FROM s{i};\n" for i in range(400))
    for stages, last, limit in ((doubled, 40, "operations"), (deep, 400, "levels")):
        with pytest.raises(QueryError, match=f"the limit of {limit} is"):
            compile_query(f"CREATE STREAM s0 AS SELECT ts, len AS x FROM Main;\n{stages}SELECT x FROM s{last}")


def test_long_lists() -> None:
    choices = ", ".join(f"10.0.{i // 256}.{i % 256}" for i in range(3000))
    assert_sound(compile_query(f"SELECT ts FROM Main WHERE srcIP IN ({choices})"))


def test_buckets_are_positive() -> None:
    with pytest.raises(ValueError, match="at least one"):
        compile_query("SELECT ts FROM Main", buckets=0)


def test_fingerprint_tells_stages_apart() -> None:
    base = "SELECT srcIP, count(*) [RANGE 1 minute] FROM Main GROUP BY srcIP"
    others = [
        base.replace("Main", "Other"), base.replace("1 minute", "2 minutes"), base.replace("count(*)", "sum(len)"),
        base.replace("GROUP", "WHERE proto = 6 GROUP"), base.replace("srcIP", "destIP"),
        base.replace("GROUP", "WHERE proto = 17 GROUP"),
    ]  # fmt: skip
    prints = [compile_query(sql).stage.fingerprint for sql in (base, *others)]
    prints.append(compile_query(base, buckets=3).stage.fingerprint)
    assert len({*prints}) == len(prints)


def test_fingerprint_is_of_the_low_level_alone() -> None:
    queries = (
        "SELECT srcIP, count(*) [RANGE 4 minutes, SLIDE 1 minute] FROM Main GROUP BY srcIP",
        "select SRCIP as srcIP, COUNT(*) as n [slide 1 minute, range 9 minutes] from Main group by src having n > 7",
    )
    assert len({compile_query(sql).stage.fingerprint for sql in queries}) == 1


def test_equal_plans_in_every_process() -> None:
    sql = "SELECT link, srcIP, count(*), last(len) [RANGE 1 m] FROM A UNION B WHERE link <> 'x' GROUP BY link, srcIP"
    code = f"from lowmark.query.compile import compile_query; print(repr(compile_query({sql!r})))"
    command = [sys.executable, "-c", code]
    printed = {
        subprocess.run(
            command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            cwd=Path(__file__).parents[2],
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert printed == {f"{compile_query(sql)!r}\n"}


FILES = sorted(ACCEPTANCE.rglob("*.sql"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ACCEPTANCE)))
def test_acceptance_set(path: Path) -> None:
    """It compiles, but for the cases that are to be refused."""
    exit_code = path.parent / "expected.exit"
    refused = exit_code.is_file() and exit_code.read_text(encoding="utf-8").strip() == "2"
    plan, problem = compiled(path.read_text(encoding="utf-8"))
    assert (plan is None) == refused, problem
    if plan is not None:
        assert_sound(plan)


def compiled(sql: str) -> tuple[QueryPlan | None, str]:
    try:
        return compile_query(sql), ""
    except QueryError as error:
        return None, error.message


def test_acceptance_set_is_there() -> None:
    if not FILES:
        pytest.skip(f"the acceptance set is not at {ACCEPTANCE}")


def test_a_column_named_after_a_long_list_has_a_short_name() -> None:
    values = ", ".join(map(str, range(1000)))
    plan = compile_query(f"SELECT len IN ({values}), count(*) FROM Main GROUP BY ts, len IN ({values})")
    assert [len(name) <= 255 for name in plan.output.names] == [True, True]
    assert plan.output.names[0].startswith("len_in_0_1_2_3_")
