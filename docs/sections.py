"""Makes sections of the guide from the code: `.venv/bin/python docs/sections.py` writes them anew.

A section is between the lines `<!-- made: NAME -->` and `<!-- end of NAME -->` of a Markdown file in this folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import typer
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from highlevel.metrics import HighLevelMetrics
from ingest.metrics import IngestMetrics
from lowlevel.metrics import LowLevelMetrics
from lowmark.app.cli import app
from lowmark.app.job.checkpoint_reach import CheckpointReach
from lowmark.app.job.roster_metrics import RosterMetrics
from lowmark.app.kafka.reachability import KafkaReach
from lowmark.app.process_metrics import ConfigMetrics, ThreadMetrics, process_registry
from lowmark.query.aggregates import calls, sketches
from lowmark.query.catalog import DERIVED_FIELDS, PACKET_FIELDS, field_table
from lowmark.query.options import Vocabulary
from lowmark.query.parse import size_limits
from lowmark.query.result_names import OFFICIAL, name_in
from lowmark.wire.kafka.settings import KafkaSettings
from lowmark.wire.rows.schema import Kind

FOLDER = Path(__file__).parent
SECTION = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)

_SUFFIX = {"counter": "_total", "info": "_info"}
"""Suffix that Prometheus sees after a metric's name, by kind."""

_LEADING = 2**sketches.LEADING_BITS
_MEANING = {
    "approx_count_distinct": "Number of different values, or of different combinations of several arguments. The "
    f"standard error is {100 * sketches.CELL_ERROR:.1f}%: two of three answers are nearer, 95 of 100 within twice it.",
    "approx_quantile": f"The value of `quantile`, with an error of at most 1/{_LEADING} of itself; whole numbers below "
    f"{_LEADING} are exact.",
    "avg": "The exact sum, of any number of bits, divided once by the number of values: for integers the nearest "
    "double.",
    "bit_and": "Bitwise and of all values.",
    "bit_or": "Bitwise or of all values.",
    "count": "`count(*)` counts tuples, `count(x)` those where x is not null.",
    "count distinct": "Number of different values, or of different combinations of several arguments without a null.",
    "first": "Value of the earliest tuple, by `ts`, then arrival.",
    "heavy_hitter": "`heavy_hitter(x, n)`: the exact n-th most frequent value; among equally frequent values the least "
    "comes first; null if there are fewer than n values.",
    "heavy_hitter_count": "`heavy_hitter_count(x, n)`: the number of times that value occurs.",
    "last": "Value of the latest tuple, by `ts`, then arrival.",
    "max": "Greatest value; IPv6 addresses are greater than IPv4 ones.",
    "median": "Middle value; with an even number of values, the mean of the middle two.",
    "min": "Least value; IPv4 addresses are less than IPv6 ones.",
    "quantile": "`quantile(x, q)`: the value at rank max(1, ceil(q·n)), q taken as the exact decimal.",
    "stddev": "Square root of the variance, within one unit in the last place if the variance is the nearest double.",
    "sum": "Exact for integers; a sum that exceeds 64 bits is null and makes its window lossy. Floats are summed with "
    "twice a double's digits and rounded at the end: their order changes at most the last digit, and rarely.",
    "variance": "Variance of the population: the nearest double for integers, computed from sums with twice a double's "
    "digits for floats. If the sum of squares exceeds 128 bits, it is null and its window lossy.",
}


def made() -> dict[str, str]:
    """Each section's text by its name."""
    return {
        "fields": field_table(),
        "derived": field_table(DERIVED_FIELDS),
        "aggregates": _aggregates(),
        "commands": "\n".join(_commands()),
        "limits": _limits(),
        "metrics": _metrics(),
        "names": _names(),
    }


def rewritten(text: str) -> str:
    """The text with its sections made anew; KeyError for a section that is not made here."""
    sections = made()

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}{sections[match[2]]}\n{match[3]}"

    return SECTION.sub(fill, text)


def _registries() -> dict[str, CollectorRegistry]:
    """The registry of each process."""
    capture, job = process_registry(), process_registry()
    IngestMetrics(capture)
    LowLevelMetrics(capture, lambda: (), lambda: (), lambda: 0)
    HighLevelMetrics(job, (), {})
    RosterMetrics(job, tuple, dict)
    CheckpointReach("", job)
    for registry in (capture, job):
        KafkaReach(KafkaSettings("localhost:9092"), "sources", registry)
        ThreadMetrics(registry, lambda: ())
        ConfigMetrics(registry, lambda: None)
    return {"capture": capture, "job": job}


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    escaped = [tuple(cell.replace("|", "\\|") for cell in row) for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*escaped, strict=True)][:-1]
    lines = ["| " + " | ".join((*map(str.ljust, row, widths), row[-1])) + " |" for row in escaped]
    rule = "|" + "|".join("-" * (width + 2) for width in (*widths, len(head[-1]))) + "|"
    return "\n".join((lines[0], rule, *lines[1:]))


def _aggregates() -> str:
    rows = []
    for name in sorted({*calls.names(), "count distinct"}):
        function = calls.function(*name.split()[:1], distinct=name.endswith(" distinct"))
        least, most = function.arguments
        takes = [
            "any kind" if len(function.kinds) == len(Kind) else ", ".join(sorted(kind.value for kind in function.kinds))
        ]
        takes += ["`*`"] * (least == 0) + ["one or more"] * (most is None) + [*function.parameters]
        below = "one row a group" if function.details is None else "a row for each value"
        if function.most is not None:
            below = f"at most {function.most(Kind.INT):,} rows a group"
        rows.append((f"`{_call(name, function)}`", "; ".join(takes), below, _MEANING[name]))
    return _table(("call", "takes", "the low level sends", "value"), rows)


def _call(name: str, function: calls.AggregateFunction) -> str:
    word, _, distinct = name.partition(" ")
    signs = ["n" if parameter.startswith("a place") else "q" for parameter in function.parameters]
    arguments = ["x", *signs, *(["y …"] if function.arguments[1] is None else [])]
    return f"{word}({'DISTINCT ' if distinct else ''}{', '.join(arguments)})"


def _limits() -> str:
    rows = [(limit.name, f"{limit.most:,}", limit.of, limit.reason) for limit in size_limits.LIMITS]
    return _table(("limit", "at most", "counts", "why"), rows)


def _commands() -> Iterator[str]:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    yield from _commands_of(group, "lowmark")


def _commands_of(group: typer.core.TyperGroup, below: str) -> Iterator[str]:
    for word, command in group.commands.items():
        name = f"{below} {word}"
        context = typer.Context(command, info_name=name)
        yield f"### {name}\n"
        yield f"    {' '.join(command.get_usage(context).removeprefix('Usage: ').split())}\n"
        about = (command.help or "").partition("\b")[0].removesuffix("Examples:\n\n").removesuffix("Example:\n\n")
        yield " ".join(about.split("Examples:")[0].split("Example:")[0].split()) + "\n"
        rows = [record for item in command.params if (record := item.get_help_record(context))]
        yield _table(
            ("option", "meaning"),
            [(f"`{_without_type(option)}`", text) for option, text in rows if option != "-h, --help"],
        )
        yield ""
        if isinstance(command, typer.core.TyperGroup):
            yield from _commands_of(command, name)


def _without_type(shown: str) -> str:
    """Python's type behind the name of an argument says nothing about the command."""
    return shown if shown.startswith("-") else shown.partition(" <")[0]


def _names() -> str:
    """An official name is code; what stands in place of a missing one is in parentheses."""
    rows = []
    columns = [field.name for field in (*PACKET_FIELDS, *DERIVED_FIELDS)]
    for column in (*columns, *(name for name in OFFICIAL if name not in columns)):
        cells = [f"`{column}`"]
        for names in (Vocabulary.ECS, Vocabulary.OTEL, Vocabulary.IPFIX):
            shown = name_in(names, column)
            official = column in OFFICIAL and getattr(OFFICIAL[column], names.value) is not None
            cells.append(f"`{shown}`" if official else f"({shown})")
        rows.append(tuple(cells))
    return _table(("column", '`"ecs"`', '`"otel"`', '`"ipfix"`'), rows)


def _metrics() -> str:
    rows = []
    for process, registry in _registries().items():
        for collector in registry._collector_to_names:
            # A wrapper knows its labels even before anything is counted; a collected family does not.
            families = [collector] if isinstance(collector, MetricWrapperBase) else list(collector.collect())
            for item in families:
                name, kind, text, labels = _described(item)
                if not name.startswith("lowmark_"):  # prometheus-client's own metrics of the process
                    continue
                shown = ", ".join(f"`{label}`" for label in labels)
                rows.append((f"`{name}{_SUFFIX.get(kind, '')}`", process, kind, shown, text))
    return _table(("name", "process", "kind", "labels", "meaning"), sorted(rows))


def _described(item: MetricWrapperBase | Metric) -> tuple[str, str, str, tuple[str, ...]]:
    if isinstance(item, MetricWrapperBase):
        return item._name, item._type, item._documentation, item._labelnames
    return item.name, item.type, item.documentation, item._labelnames


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = rewritten(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(f"{path.name}: written anew")
