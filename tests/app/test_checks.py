"""`lowmark check` compiles what captures run: it finds what the compiler refuses, and they find it compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lowmark.app.config.checks import CheckResult, run_checks
from lowmark.app.kafka.jars import SPARK_KAFKA, _place
from lowmark.app.kafka.rights import Role

ROOT = Path(__file__).parents[2]

_CHECK = """
import sys
from pathlib import Path
from lowmark.app.config import checks
from lowmark.app.kafka.rights import Role
checks._PATIENCE_S = float(sys.argv[1])
for result in checks.run_checks(Path("lowmark.toml"), tuple(Role), lambda text: print("told", text)):
    if result.what.startswith("Java"):
        break
    print(result.what, "|", result.problem, "|", result.exit_code)
print("lowmark.jit.llvm_compiler" in sys.modules)
"""

_LIST = ", ".join(f"10.0.{number // 256}.{number % 256}" for number in range(0, 2_000, 2))
_OTHER = ", ".join(f"10.9.{number // 256}.{number % 256}" for number in range(0, 1_000, 3))


def configured(folder: Path, sql: str) -> None:
    (folder / "lowmark.toml").write_text(
        '[kafka]\nbootstrap = "127.0.0.1:1"\n[streams.Main]\n[streams.Other]\n'
        '[sources.tap]\nstream = "Main"\nfile = "-"\nhost = "elsewhere"\n'
        '[sources.idle]\nstream = "Other"\nfile = "-"\nhost = "elsewhere"\n'
        f'[queries.asked]\nsql = "{sql}"\n'
    )


def checked(folder: Path, patience_s: float = 60.0) -> list[str]:
    path = os.pathsep.join((str(folder), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "LOWMARK_CACHE": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-c", _CHECK, str(patience_s)],
        env=environment,
        cwd=folder,
        check=True,
        timeout=300,
        capture_output=True,
        text=True,
    ).stdout.splitlines()


def test_a_query_whose_windows_have_gaps_is_said_to(tmp_path: Path) -> None:
    for sql, said in (
        (
            "SELECT count(*) [RANGE 10 s, SLIDE 1 minute] FROM Main",
            "query asked: windows have gaps: of each 1 min of ts",
        ),
        ("SELECT count(*) [RANGE 1 minute] FROM Main", "query asked"),
    ):
        configured(tmp_path, sql)
        results = run_checks(tmp_path / "lowmark.toml", (), lambda text: None)
        assert next(results).problem is None
        query = next(results)
        assert query.problem is None
        assert query.what.startswith(said)
        assert ("gaps" in query.what) == ("gaps" in said)


@pytest.mark.slow
def test_kernels_are_compiled_and_kept_also_for_lists_of_other_values(tmp_path: Path) -> None:
    said = "kernel of stream Main, for asked"
    query = "SELECT srcIP, count(*) [RANGE 1 s] FROM Main WHERE srcIP IN ({}) GROUP BY srcIP"
    configured(tmp_path, query.format(_LIST))
    *first, compiler = checked(tmp_path, patience_s=0.0)
    assert f"{said} | None | 0" in first
    assert compiler == "True"
    assert f"told compiling the {said}" in first
    configured(tmp_path, query.format(_OTHER))
    again = checked(tmp_path)
    assert f"{said} | None | 0" in again
    assert again[-1] == "False"
    assert not any(line.startswith("told") for line in again)


_AGGREGATE = """
from lowmark.query.aggregates.calls import AggregateFunction, Result
from lowmark.query.expr.expressions import Call, Named, Op
from lowmark.query.aggregates.lift import Lift
from lowmark.query.plan.nodes import FoldOp
from lowmark.wire.rows.schema import Kind

def lift(args, order):
    return Lift(FoldOp.BIT_OR, (Named("", Call(Op.BIT_OR, (args[0], args[0]), Kind.INT, False)),)),

WRONG = AggregateFunction(
    name="wrong", kinds=frozenset({Kind.FLOAT}), lift=lift, result=lambda args: Result(Kind.INT, True),
    finish=lambda groups, parameters: groups.folds[0][0],
)
"""


def test_what_the_compiler_refuses_is_told(tmp_path: Path) -> None:
    """An aggregate of somebody's own that takes doubles for words."""
    (tmp_path / "wrong_aggregate.py").write_text(_AGGREGATE)
    info = tmp_path / "wrong-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[lowmark.aggregates]\nwrong = wrong_aggregate:WRONG\n")
    configured(tmp_path, "SELECT wrong(len * 1.5) [RANGE 1 s] FROM Main")
    (problem,) = [line for line in checked(tmp_path) if line.startswith("kernel")]
    what, _, rest = problem.partition(" | ")
    why, _, code = rest.rpartition(" | ")
    assert what == "kernel of stream Main, for asked"
    assert why.startswith("it cannot be compiled: ")
    assert len(why) < 400
    assert code == "2"


def test_what_a_job_needs_is_looked_for_on_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(tmp_path, "SELECT count(*) [RANGE 1 s] FROM Main")

    def said() -> dict[str, CheckResult]:
        """By the first word, up to what is said of Kafka."""
        found = {}
        with monkeypatch.context() as at:
            for result in run_checks(tmp_path / "lowmark.toml", (Role.RUN,), lambda text: None):
                found[result.what.partition(" ")[0]] = result
                if result.what.startswith("kernel"):  # the cache that has it is left alone
                    at.setenv("LOWMARK_CACHE", str(tmp_path / "cache"))
                if result.what.startswith("checkpoint"):
                    break
        return found

    found = said()
    assert f"the jars of Spark's Kafka connector are not in {tmp_path}/cache/jars" in (found["jars"].problem or "")
    assert "`lowmark fetch` gets them" in (found["jars"].problem or "")
    assert found["jars"].exit_code == 1
    assert found["Java"].problem is None is found["checkpoint"].problem
    assert not (tmp_path / "checkpoint").exists()

    damaged_jars(tmp_path / "cache")
    (tmp_path / "checkpoint").write_text("")
    found = said()
    assert "differ from the lockfile in 5 of 5" in (found["jars"].problem or "")
    assert f"{tmp_path}/checkpoint is not a folder. Set job.checkpoint to" in (found["checkpoint"].problem or "")


def damaged_jars(cache: Path) -> None:
    """Those of Spark's connector, cut short."""
    expected, folder = _place(SPARK_KAFKA, cache, None)
    folder.mkdir(parents=True)
    for name in expected:
        (folder / name).write_bytes(b"half of")
