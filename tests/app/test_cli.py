"""The command line as a person meets it: help, answers, errors and exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from lowmark import __version__
from lowmark.app.cli import app, main
from lowmark.app.commands.query import query_text
from lowmark.app.traffic import TrafficSpec, write_capture
from lowmark.wire.records.record import WIRE_VERSION

ROOT = Path(__file__).parents[2]

TALKERS = "SELECT srcIP, count(*), sum(len) AS bytes [RANGE 1 second] FROM Main GROUP BY srcIP"


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    def rows(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Command:
    """`lowmark` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Run:
        self._monkeypatch.setattr(sys, "argv", ["lowmark", *arguments])
        self._capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as ending:
            code = ending.code or 0
        assert isinstance(code, int)
        out, err = self._capsys.readouterr()
        return Run(code, out, err)


@pytest.fixture
def lowmark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("COLUMNS", "120")
    return Command(monkeypatch, capsys)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("captures") / "small.pcap"
    write_capture(path, TrafficSpec(packets=3_000, duration_ns=3 * 10**9, groups=20))
    return path


def commands() -> list[str]:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return sorted(group.commands)


def test_the_version(lowmark: Command) -> None:
    told = lowmark("--version").out
    shown = re.fullmatch(rf"lowmark {re.escape(__version__)} \(commit (\S+), wire version {WIRE_VERSION}\)\n", told)
    assert shown is not None
    if (ROOT / ".git").exists() and shutil.which("git"):
        asked = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        assert len(shown[1]) >= 12
        assert commit.startswith(shown[1].removesuffix("-dirty"))


def test_an_installed_package_knows_its_commit(tmp_path: Path) -> None:
    """Built where there is no repository, as in an image: the build is told, or the source distribution knows."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "lowmark").mkdir()
    for name in ("__init__.py", "release.py"):
        shutil.copy(ROOT / "lowmark" / name, tmp_path / "lowmark")
    environment = {name: value for name, value in os.environ.items() if name != "LOWMARK_COMMIT"}

    def build(folder: Path, *command: str, **told: str) -> None:
        setup = [sys.executable, "setup.py", "--quiet", *command]
        subprocess.run(setup, cwd=folder, check=True, env=environment | told, capture_output=True)

    build(tmp_path, "sdist", "--dist-dir", "made", LOWMARK_COMMIT="0123456789ab")
    (sources,) = (tmp_path / "made").glob("*.tar.gz")
    shutil.unpack_archive(sources, tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    build(unpacked, "build", "--build-lib", "lib")
    assert (unpacked / "lib" / "lowmark" / "commit.txt").read_text() == "0123456789ab\n"


def test_help_lists_the_commands_and_how_to_begin(lowmark: Command) -> None:
    run = lowmark("--help")
    assert run.code == 0
    assert all(name in run.out for name in commands())
    assert "Begin with" in run.out


@pytest.mark.parametrize("words", [[], ["sources"], ["checkpoint"]])
def test_what_a_command_does_is_not_cut_off(lowmark: Command, words: list[str]) -> None:
    run = lowmark(*words, "--help")
    assert run.code == 0
    assert "..." not in run.out.partition("\nCommands:")[2]


def test_usage_writes_each_bracket_once(lowmark: Command) -> None:
    for name in commands():
        usage = lowmark(name, "--help").out.partition("\n\n")[0]
        assert "[[" not in usage
        assert "]...]" not in usage


@pytest.mark.parametrize("name", commands())
def test_every_command_has_its_help_with_an_example(lowmark: Command, name: str) -> None:
    run = lowmark(name, "-h")
    assert (run.code, run.err) == (0, "")
    assert f"lowmark {name}" in run.out.partition("Example")[2]


def test_help_loads_neither_kernels_nor_clients() -> None:
    """It has to come at once."""
    program = (
        "import sys; sys.argv = ['lowmark', '--help']\n"
        "from lowmark.app.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numba', 'pyspark', 'confluent_kafka', 'pyarrow', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)


def test_a_query_seen_before_loads_no_compiler_and_no_client(tmp_path: Path) -> None:
    """Its first row has to come at once."""
    write_capture(tmp_path / "small.pcap", TrafficSpec(packets=100, duration_ns=10**9, groups=10))
    program = (
        "import sys\n"
        "sys.argv = ['lowmark', 'query', '-q', '-r', 'small.pcap', 'SELECT count(*) [RANGE 1 s] FROM Main']\n"
        "from lowmark.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "slow = {'numba', 'pyspark', 'confluent_kafka', 'pandas', 'numpy.random', 'lowmark.wire.records.codec'}\n"
        "print(*slow & set(sys.modules), file=sys.stderr)\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, timeout=120)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout != b""
    assert runs[1].stderr == b"\n"


def test_an_unknown_command_or_option(lowmark: Command) -> None:
    unknown = lowmark("nonsense")
    assert unknown.code == 2
    assert "nonsense" in unknown.err
    wrong = lowmark("query", "--nonsense", "SELECT ts FROM Main")
    assert wrong.code == 2
    assert "--nonsense" in wrong.err


def test_a_query_over_a_capture(lowmark: Command, capture: Path) -> None:
    run = lowmark("query", "-r", str(capture), "--format", "jsonl", TALKERS)
    assert run.code == 0
    assert sum(int(str(row["count"])) for row in run.rows()) == 3_000
    assert "3,000 frames received" in run.err
    assert "exact" in run.err


def test_rows_alone_are_on_standard_output_and_quiet_is_quiet(lowmark: Command, capture: Path) -> None:
    loud = lowmark("query", "-r", str(capture), "--format", "jsonl", TALKERS)
    expecting = ("--rate", "Main=1000/s", "--groups", "50")  # which changes no row
    quiet = lowmark("query", "-q", "-r", str(capture), "--format", "jsonl", *expecting, TALKERS)
    assert quiet.err == ""
    assert sorted(quiet.out.splitlines()) == sorted(loud.out.splitlines())


def test_a_query_from_a_file_into_a_file(lowmark: Command, capture: Path, tmp_path: Path) -> None:
    (tmp_path / "talkers.sql").write_text(TALKERS)
    out = tmp_path / "rows.csv"
    run = lowmark(
        "query", "-r", f"Main={capture}", "-f", str(tmp_path / "talkers.sql"), "--format", "csv", "-o", str(out)
    )
    assert (run.code, run.out) == (0, "")
    assert out.read_text().splitlines()[0] == "window_start,window_end,srcIP,count,bytes"


def test_a_query_that_is_wrong_shows_the_spot(lowmark: Command, capture: Path) -> None:
    run = lowmark("query", "-r", str(capture), "SELECT srcIP, count(*) [RANGE 1 second] FROM Main GROUP BY scrIP")
    assert (run.code, run.out) == (2, "")
    assert "error:" in run.err
    assert "no field called scrIP" in run.err
    assert "^" in run.err
    assert "srcIP" in run.err
    assert "Traceback" not in run.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give the query as an argument"),
        ((TALKERS, "-f", "query.sql"), "give the query as an argument"),
        (("-f", "absent.sql"), "cannot read absent.sql: No such file"),
        ((TALKERS,), "-r"),
        ((TALKERS, "-r", "{capture}", "--disorder", "much"), "much"),
        ((TALKERS, "-r", "{capture}", "--flush", "much"), "'--flush': 'much' is not one of"),
        ((TALKERS, "-r", "{capture}", "--format", "much"), "much"),
        ((TALKERS, "-r", "{capture}", "--table", "0"), "no size of a table"),
        ((TALKERS, "-r", "{capture}", "--table", "64X"), "such as 64M"),
        ((TALKERS, "-r", "{capture}", "--table", "100"), "--table 100: slots is 100: it is a power of two from 1 to "),
        ((TALKERS, "-r", "{capture}", "--table", "100"), "such as 128"),
        ((TALKERS, "-r", "{capture}", "--table", "900G"), "--table 900G: a table of it takes 136.0 GiB, and this "),
        ((TALKERS, "-r", "{capture}", "--table", "2147483648"), "--table 2147483648: a table of it takes 136.0 GiB"),
        ((TALKERS, "-r", "{capture}", "--fanout", "2", "--promiscuous"), "--fanout, --promiscuous apply to interfaces"),
        (
            (TALKERS, "-r", "{capture}", "--flush", "lazy", "--flush-every", "9"),
            "only with --flush slow, and --flush is lazy",
        ),
        ((TALKERS, "-r", "{capture}", "--flush-panes", "0"), "--flush-panes"),
        ((TALKERS, "-r", "{capture}", "--kernel-filter"), "--kernel-filter applies to interfaces (-i)"),
        ((TALKERS, "-i", "any", "--promiscuous"), "has a promiscuous mode for each interface, and none for any"),
        ((TALKERS, "-i", "lo", "--follow"), "it applies to files (-r)"),
        ((TALKERS, "-r", "{capture}", "--follow", "--disorder", "scan"), "what is followed has none"),
        ((TALKERS, "-r", "{capture}", "--rate", "Z=5/s"), "no input or stream called Z in this query"),
        ((TALKERS, "-r", "{capture}", "--selectivity", "A,B=2"), "above 0 and at most 1"),
        ((TALKERS, "-r", "{capture}", "-o", "absent/rows"), "cannot write absent/rows: No such file"),
        ((TALKERS, "-r", "Other={capture}", "-r", "More={capture}"), "Main"),
    ],
)
def test_bad_options(
    lowmark: Command,
    capture: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = lowmark("query", *(argument.format(capture=capture) for argument in arguments))
    assert (run.code, run.out) == (2, "")
    assert said in run.err
    assert "Traceback" not in run.err


@pytest.mark.parametrize("name", ["query", "explain"])
def test_a_query_without_quotes_is_shown_with_them(lowmark: Command, name: str) -> None:
    """What the shell makes of `lowmark query -r 'my file' SELECT srcIP, count(*) FROM Main`, and options behind it."""
    run = lowmark(name, "-r", "my file", "SELECT", "count(*)", "FROM", "Main", "--json")
    if name == "query":
        assert "No such option: --json" in run.err
        run = lowmark(name, "-r", "my file", "SELECT", "count(*)", "FROM", "Main", "-q")
    assert (run.code, run.out) == (2, "")
    option = "-q" if name == "query" else "--json"
    assert f"lowmark {name} -r 'my file' {option} 'SELECT count(*) FROM Main'\n" in run.err
    assert "come as 4: put it in quotes" in run.err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["srcIP", "=", "'10.0.0.1'"], """ "srcIP = '10.0.0.1'"\n"""),
        (["link", "=", '"a"', "OR", "link", "=", "'$b'"], """ 'link = "a" OR link = '"'"'$b'"'"''\n"""),
    ],
)
def test_quotes_around_quotes(lowmark: Command, words: list[str], shown: str) -> None:
    assert shown in lowmark("explain", *words).err


def test_windows_with_gaps_are_said(lowmark: Command, capture: Path) -> None:
    """All packets are of the first 3 s: "0 rows: exact" by itself looks like an answer."""
    sql = "SELECT srcIP, count(*) [RANGE {}, SLIDE 1 minute] FROM Main GROUP BY srcIP"
    said = "windows have gaps: of each 1 min of ts the last 10 s are in one, and what comes before is in none"
    run = lowmark("query", "-r", str(capture), sql.format("10 s"))
    assert (run.code, run.out) == (0, "")
    assert "0 rows: exact" in run.err
    assert f"note: {said}" in run.err
    assert said in lowmark("explain", sql.format("10 s")).out
    whole = lowmark("query", "-r", str(capture), sql.format("1 minute"))
    assert "gaps" not in whole.err + lowmark("explain", sql.format("1 minute")).out


def test_what_is_no_capture(lowmark: Command, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no capture, and long enough to be one")
    for path in (tmp_path / "text", tmp_path / "absent"):
        run = lowmark("query", "-r", str(path), TALKERS)
        assert (run.code, run.out) == (3, "")
        assert str(path) in run.err
        assert "Traceback" not in run.err


def test_a_capture_that_ends_too_soon_is_answered_up_to_there(lowmark: Command, capture: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(capture.read_bytes()[:-7])
    run = lowmark("query", "-r", str(cut), "--format", "jsonl", TALKERS)
    assert run.code == 3
    assert sum(int(str(row["count"])) for row in run.rows()) == 2_999
    assert "cut.pcap" in run.err


@pytest.mark.parametrize("format_", ["table", "jsonl", "csv", "parquet", "arrow"])
def test_a_full_disk_is_told_in_a_sentence(lowmark: Command, capture: Path, format_: str) -> None:
    run = lowmark("query", "-q", "-r", str(capture), "--format", format_, "-o", "/dev/full", TALKERS)
    assert run.code == 1
    assert run.err.startswith("error: cannot write /dev/full: No space left on device\n")


@pytest.mark.parametrize("command", ["query", "explain"])
def test_a_full_disk_behind_standard_output(capture: Path, command: str) -> None:
    words = ["query", "-q", "-r", str(capture), TALKERS] if command == "query" else ["explain", TALKERS]
    with open("/dev/full", "wb") as full:
        run = subprocess.run([sys.executable, "-m", "lowmark", *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 1
    assert run.stderr.splitlines()[0].endswith("standard output: No space left on device")
    assert "Traceback" not in run.stderr
    assert "Exception" not in run.stderr


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(capture: Path) -> None:
    """`lowmark query … | head -1`."""
    command = [
        sys.executable,
        "-m",
        "lowmark",
        "query",
        "-q",
        "-r",
        str(capture),
        "--format",
        "jsonl",
        "SELECT * FROM Main",
    ]
    with_errors = [command[0], *(word for word in command[1:] if word != "-q")]
    with subprocess.Popen(with_errors, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:  # `2>&1 | head -1`
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 141
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141  # as the shell has it for a program that SIGPIPE has ended


def test_the_name_of_a_query_is_its_files(tmp_path: Path) -> None:
    path = tmp_path / "talkers.sql"
    path.write_text(TALKERS)
    assert query_text(None, path) == (TALKERS, "talkers")
    assert query_text(TALKERS, None) == (TALKERS, "query")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(typer.BadParameter, match="it is not UTF-8"):
        query_text(None, path)


@pytest.mark.parametrize(("window", "keys"), [
    ("RANGE ALL, SLIDE 1 second", "srcIP"),
    ("RANGE 5 rows, WA row_num, PA srcIP", "srcIP"),
    ("RANGE 1 second, RATTR ts, SLIDE 2 rows, SATTR row_num, PA srcIP", "srcIP"),
])  # fmt: skip
def test_a_limit_of_groups_stops_a_query_in_a_sentence(
    lowmark: Command, capture: Path, window: str, keys: str
) -> None:  # fmt: skip
    grouped = "" if "PA" in window else "GROUP BY srcIP"
    sql = f"SELECT srcIP, count(*) [{window}] FROM Main {grouped}"
    enough = lowmark("query", "-r", str(capture), "--limit-groups", "6", sql)
    assert (enough.code, len({row["srcIP"] for row in enough.rows()})) == (0, 6)
    stopped = lowmark("query", "-r", str(capture), "--limit-groups", "5", sql)
    assert stopped.code == 2
    said = " ".join(stopped.err.split())
    assert f"query query: more than 5 different ({keys}) in a bucket" in said
    assert "limits.groups" in said
    assert "--limit-groups" in said
    assert "Traceback" not in said


def test_values_that_split_groups_count_for_the_limit(lowmark: Command, capture: Path) -> None:
    sql = (
        "SELECT heavy_hitter(srcIP, 1) AS host, heavy_hitter_count(srcIP, 1) AS n [RANGE ALL, SLIDE 1 second] FROM Main"
    )
    assert lowmark("query", "-r", str(capture), "--limit-groups", "6", sql).code == 0
    stopped = lowmark("query", "-r", str(capture), "--limit-groups", "5", sql)
    assert stopped.code == 2
    assert "more than 5 different (what heavy_hitter_srcIP_1 counts by) in a bucket" in " ".join(stopped.err.split())


def test_an_average_whose_sum_leaves_64_bits(lowmark: Command, capture: Path) -> None:
    """It fits itself; the sum does not. That sums leave the table for it is no want of room."""
    sql = "SELECT avg(len) AS a, avg(len * 1000000000000000) AS w [RANGE 1 day] FROM M"
    run = lowmark("query", "-r", str(capture), sql)
    assert run.code == 0
    (row,) = run.rows()
    assert isinstance(row["a"], float)
    assert row["w"] == pytest.approx(row["a"] * 1e15, rel=1e-12)
    greatest = lowmark("query", "-r", str(capture), "SELECT avg(9223372036854775807) AS w [RANGE 1 day] FROM M")
    assert [row["w"] for row in greatest.rows()] == [2.0**63]
    assert "collisions" not in run.err + greatest.err
    summed = lowmark("query", "-r", str(capture), "SELECT sum(len * 1000000000000000) AS s [RANGE 1 day] FROM M")
    assert (summed.code, [row["s"] for row in summed.rows()]) == (4, [None])
    assert "overflow" in summed.err
