"""What the documentation says is what the program does."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import re
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType

import pytest
import typer

from ingest.disorder.declarations import parse_disorder
from lowmark.app.cli import app
from lowmark.app.config.file import CaptureSource, Config, Query, Stream, load_config
from lowmark.query.catalog import unit_ns
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.topics import TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.record import BadReason, BadRecord, RecordKind, headers_of
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.words import arrow_schema
from tests.docs.pages import FENCE, PAGES, ROOT, ROW, blocks, names, section, table, text


def load_sections() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sections", ROOT / "docs" / "sections.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=names)
def test_what_is_made_from_the_code_is_current(page: Path) -> None:
    written = page.read_text(encoding="utf-8")
    assert load_sections().rewritten(written) == written, "run: python docs/sections.py"


def queries_of_toml(block: str) -> Iterator[str]:
    yield from (match[1] for match in re.finditer(r"sql = '''\n(.*?)'''", block, re.DOTALL))


def documented_queries() -> list[tuple[str, str]]:
    found = list(blocks("sql"))
    found += [(page, sql) for page, block in blocks("toml") for sql in queries_of_toml(block)]
    for page, block in [*blocks("sh"), *blocks("")]:
        found += [
            (page, match[1])
            for match in re.finditer(r"['\"]\s*(SELECT\s.*?)['\"]\s*$", block, re.DOTALL | re.MULTILINE)
        ]
    return found


@pytest.mark.parametrize(("page", "sql"), documented_queries())
def test_queries_compile(page: str, sql: str) -> None:
    assert isinstance(compile_query(sql), QueryPlan)


def test_the_guide_has_queries() -> None:
    assert {"docs/language.md", "README.md"} <= {page for page, _ in documented_queries()}


IN_ONE_BUCKET = {
    "without GROUP BY there is one group": "SELECT count(*) [RANGE 1 s] FROM A",
    "windows over rows without PA count the tuples of the whole stream": "SELECT count(*) [RANGE 9 rows, WA row_num] "
    "FROM A",
    "every n-th tuple of the whole stream ends a window": "SELECT count(*) [RANGE 9 s, RATTR ts, SLIDE 2 rows, "
    "SATTR row_num] FROM A",
    "every n-th tuple of the whole stream, by rank, ends a window": "SELECT count(*) [RANGE 9 s, RATTR ts, SLIDE 2 "
    "rows, SATTR rank(ts)] FROM A",
    "row_num is counted in one place": "SELECT row_num FROM A",
    "ORDER BY is over the whole stream": "SELECT len FROM A ORDER BY ts",
    "no equality ties all of M1, M2 together": "SELECT M1.len FROM M1 [RANGE 1 s], M2 [RANGE 1 s] "
    "WHERE M1.len > M2.len",
    "total() is over all groups of a window": "SELECT m, srcIP, count(*) FROM A GROUP BY ts/60 AS m, srcIP "
    "HAVING count(*) > 0.1 * total(count(*))",
    "m, by which rows would change their bucket, is no time": "CREATE STREAM s AS SELECT m, srcIP, count(*) AS n "
    "FROM A GROUP BY ts/60 AS m, srcIP; SELECT n, sum(n) AS c FROM s GROUP BY m/2, n",
}


def test_what_runs_in_one_bucket_is_described() -> None:
    """As `explain` says it; the example beside it has many."""
    written = section("docs/language.md", "What runs in one bucket")
    assert {*re.findall(r"^\| `(.*?)` \|", written, re.MULTILINE)} == IN_ONE_BUCKET.keys()
    for reason, sql in IN_ONE_BUCKET.items():
        (note,) = (
            note for note in compile_query(sql, buckets=8, streams={"A": 2, "M1": 1, "M2": 1}).notes
            if note.startswith("one bucket")
        )  # fmt: skip
        assert reason in note
    (example,) = re.findall(r"```sql\n(.*?)```", written, re.DOTALL)
    assert not [note for note in compile_query(example, buckets=8).notes if "bucket" in note]


def test_nothing_is_said_not_to_be_built() -> None:
    """Neither by the README, nor by an error."""
    assert "not built" not in (ROOT / "README.md").read_text(encoding="utf-8").casefold()
    for path in (ROOT / "lowmark").rglob("*.py"):
        assert not re.search(r"cannot run yet|not implemented", path.read_text(encoding="utf-8")), path


def commands() -> dict[str, set[str]]:
    """The options of each command."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return {
        name: {"-h", "--help", *(option for item in command.params for option in [*item.opts, *item.secondary_opts])}
        for name, command in group.commands.items()
    }


def calls() -> Iterator[tuple[str, str, str]]:
    """Every call of lowmark that stands in code: page, command, what is behind it."""
    for page in PAGES:
        written = page.read_text(encoding="utf-8")
        code = [match[2] for match in FENCE.finditer(written)]
        code += re.findall(r"`([^`\n]+)`", FENCE.sub("", written)) + re.findall(r"^    (.+)$", written, re.MULTILINE)
        for piece in code:
            for match in re.finditer(r"(?<![\w./-])lowmark ((?:[a-z]+))(?=[ \n]|$)(.*)", piece):
                yield names(page), match[1], match[2]


def test_every_call_in_the_documentation_is_of_a_command_and_options_that_exist() -> None:
    known = commands()
    seen = set()
    for page, command, rest in calls():
        assert command in known, f"{page}: lowmark {command}"
        seen.add(command)
        plain = re.sub(r"'[^']*'|\"[^\"]*\"", "", rest).split("|")[0].split("#")[0]
        for option in re.findall(r"(?<=\s)(--?[a-z][\w-]*)", plain):
            assert option in known[command], f"{page}: lowmark {command} {option}"
    assert seen == set(known)


def test_every_metric_that_is_named_exists() -> None:
    known = set(re.findall(r"`(lowmark_\w+)`", load_sections().made()["metrics"]))
    for page in PAGES:
        for name in re.findall(r"\blowmark_[a-z_]+\b", page.read_text(encoding="utf-8")):
            bare = re.sub(r"_(bucket|count|sum)$", "", name)
            assert {name, bare} & known, f"{names(page)}: {name}"


def shown(value: object) -> str:
    """A default as the file writes it."""
    match value:
        case None:
            return "none"
        case Enum():
            return json.dumps(value.value)
        case Path():
            return json.dumps(str(value))
        case tuple():
            return json.dumps(list(value))
        case _:
            return json.dumps(value)


def defaults(kind: type[object]) -> dict[str, str]:
    assert dataclasses.is_dataclass(kind)
    found = {}
    for item in dataclasses.fields(kind):
        if item.default_factory is not dataclasses.MISSING and dataclasses.is_dataclass(item.default_factory()):
            continue  # a table of its own
        if item.default is not dataclasses.MISSING:
            found[item.name] = shown(item.default)
        elif item.default_factory is not dataclasses.MISSING:
            found[item.name] = shown(item.default_factory())
        else:
            found[item.name] = "required"
    return found


def tables_of_configuration() -> dict[str, type[object]]:
    hints = typing.get_type_hints(Config)
    capture = typing.get_type_hints(hints["capture"])
    return {
        "[capture.table]": capture["table"], "[capture.queue]": capture["queue"],
        "[metrics]": hints["metrics"],
        "[kafka]": hints["kafka"], "[topics]": hints["topics"], "[capture]": hints["capture"], "[job]": hints["job"],
        "[streams.NAME]": Stream, "[sources.NAME]": CaptureSource, "[queries.NAME]": Query,
    }  # fmt: skip


@pytest.mark.parametrize("heading", sorted(tables_of_configuration()))
def test_every_key_of_the_configuration_stands_there_with_its_default(heading: str) -> None:
    expected = defaults(tables_of_configuration()[heading])
    if heading == "[topics]":
        expected["prefix"] = '""'
    written = {
        key: row.split("|")[0].strip().strip("`") for key, row in table("docs/configuration.md", heading).items()
    }
    assert written == expected


def test_the_examples_of_the_configuration_can_be_loaded(tmp_path: Path) -> None:
    found = [block for _, block in blocks("toml") if "[project]" not in block]
    assert found
    for block in found:
        (tmp_path / "lowmark.toml").write_text(block)
        config = load_config(tmp_path / "lowmark.toml")
        assert config.queries


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("Records", {kind.value for kind in RecordKind}),
        ("A completion", {reason.value for reason in Reason}),
        ("A dead letter", {reason.value for reason in BadReason}),
        ("Rows inside a batch", {kind.value for kind in Kind}),
        (
            "Topics",
            {f"{kind.value}.<{'stage' if kind in (TopicKind.PARTIALS, TopicKind.EXCHANGE) else 'query'}>"
             if kind.has_subject else kind.value for kind in TopicKind},
        ),
    ],
)  # fmt: skip
def test_closed_lists_are_whole(heading: str, expected: set[str]) -> None:
    written = section("docs/wire.md", heading)
    assert {match[1] for match in ROW.finditer(written.split("\n### ")[0])} == expected


def test_the_arrow_types_of_rows() -> None:
    for kind, row in table("docs/wire.md", "Rows inside a batch").items():
        arrow = arrow_schema(Schema((Column("a", Kind(kind)),))).field("a").type
        assert row.removeprefix("`").startswith(str(arrow))


@pytest.mark.parametrize(
    ("heading", "kind", "extra"),
    [
        (
            "A punctuation", RecordKind.PUNCTUATION,
            {"stage": "s", "source": "a", "epoch": "0", "node": "n", "sequence": "0"},
        ),
        ("A completion", RecordKind.COMPLETE, {"query": "talkers", "generation": "1", "bucket": "0"}),
        ("A dead letter", RecordKind.DEAD_LETTER, {}),
        ("A registration", RecordKind.REGISTRATION, {}),
    ],
)  # fmt: skip
def test_the_examples_of_records_can_be_read(heading: str, kind: RecordKind, extra: dict[str, str]) -> None:
    example = FENCE.search(section("docs/wire.md", heading))
    assert example is not None
    headers = [*headers_of(kind), *((f"lm-{name}", value.encode()) for name, value in extra.items())]
    value = example[2].replace("…", "...").encode()
    assert not isinstance(decode(headers, value), BadRecord)


def test_units_and_disorders_of_the_guide_are_known() -> None:
    (line,) = re.findall(r"^Units of time: (.*),? and their long forms", text("docs/language.md"), re.MULTILINE)
    assert all(unit_ns(unit) > 0 for unit in re.findall(r"`(\w+)`", line))
    row = table("docs/configuration.md", "[streams.NAME]")["disorder"]
    for declared in re.findall(r"`([^`]+)`", row.partition(":")[2].partition("None")[0]):
        assert str(parse_disorder(declared)) == declared


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        to = page if not path else (page.parent / path).resolve()
        assert to.exists(), f"{names(page)}: {target}"
        if anchor:
            assert anchor in anchors(to), f"{names(page)}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_files_that_are_named_exist(page: Path) -> None:
    written = FENCE.sub("", page.read_text(encoding="utf-8"))
    for path in re.findall(r"`((?:lowmark|ingest|lowlevel|highlevel|bench|tests|docs)/[\w./-]*)`", written):
        assert (ROOT / path).exists(), f"{names(page)}: {path}"


def test_modules_that_are_named_exist() -> None:
    for page in PAGES:
        for module, name in re.findall(
            r"`((?:lowmark\.(?:wire|query|app|jit)|ingest|lowlevel|highlevel)(?:\.[a-z_]+)*)(?:\.([A-Z]\w+))?`",
            page.read_text(encoding="utf-8"),
        ):
            found = importlib.import_module(module)
            assert not name or hasattr(found, name), f"{names(page)}: {module}.{name}"
