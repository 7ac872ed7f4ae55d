"""Makes the dashboards from the code: `.venv/bin/python deploy/grafana/dashboards.py` writes them anew.

Each is a JSON file for Grafana 11 or newer, to be imported or provisioned. `$datasource` is a Prometheus that scrapes
the captures and the job.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from string import ascii_uppercase
from typing import Literal

from grafana_foundation_sdk.builders.common import StackingConfig, VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.builders.dashboard import Dashboard, DashboardLink, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.timeseries import Panel
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    VariableOption,
    VariableRefresh,
)

FOLDER = Path(__file__).parent

_DATASOURCE = DataSourceRef(type_val="prometheus", uid="$datasource")

Unit = Literal["short", "percentunit", "s", "bytes", "Bps", "pps", "ops"]
Line = tuple[str, str]
"""A query, and the legend of its series."""


@dataclass(frozen=True)
class Graph:
    """Lines over time. `stacked`: they add up to something."""

    title: str
    description: str
    unit: Unit
    lines: Sequence[Line]
    stacked: bool = False


@dataclass(frozen=True)
class Board:
    """A dashboard: graphs in rows with titles; variables, each with the query of its values."""

    name: str
    title: str
    description: str
    variables: Sequence[tuple[str, str]]
    rows: dict[str, Sequence[Graph]]


def rate(metric: str, at: str) -> str:
    return f"rate({metric}{{{at}}}[$__rate_interval])"


def per(by: str, metric: str, at: str) -> str:
    """Rate of the sum over everything but these labels."""
    return f"sum by ({by}) ({rate(metric, at)})"


def quantiles(metric: str, at: str, by: str = "") -> list[Line]:
    labels, legend = ("le, " + by, f"{{{{{by}}}}} ") if by else ("le", "")
    return [
        (f"histogram_quantile({quantile}, {per(labels, f'{metric}_bucket', at)})", legend + name)
        for quantile, name in ((0.5, "median"), (0.99, "99 of 100"))
    ]


# What each of the variables selects.
INSTANCE = 'instance=~"$instance"'
SOURCE = f'{INSTANCE}, source=~"$source"'
QUERY = 'query=~"$query"'

_MEMBER = (
    f"{rate('lowmark_frames_received_total', SOURCE)} "
    "* on (instance, source) group_left (configured) lowmark_source_info"
)
_SHARE = f"{_MEMBER} / on (instance, configured) group_left sum by (instance, configured) ({_MEMBER})"
_LATE = (
    f"{per('instance, source', 'lowmark_tuples_late_total', SOURCE)} / on (instance, source) "
    f"({rate('lowmark_packets_decoded_total', SOURCE)} > 0)"
)
_WINDOWS = "lowmark_windows_completed_total"
_LOSSY = (
    f"""{per("query, reason", _WINDOWS, f'{QUERY}, verdict="lossy"')} / on (query) group_left () """
    f"({per('query', _WINDOWS, QUERY)} > 0)"
)


def by_source(metric: str, legend: str = "") -> Line:
    return per("instance, source", metric, SOURCE), f"{legend} {{{{source}}}} {{{{instance}}}}".strip()


def by_topic(metric: str) -> Line:
    return rate(metric, INSTANCE), "{{topic}} {{instance}}"


def by_stage(metric: str, legend: str = "") -> Line:
    return per("stage", metric, INSTANCE), f"{legend} {{{{stage}}}}".strip()


def by_query(metric: str) -> Line:
    return per("query", metric, QUERY), "{{query}}"


def process(cpu: str, memory: str) -> Sequence[Graph]:
    """What both processes say of themselves."""
    return (
        Graph("CPU", cpu, "short", [(rate("process_cpu_seconds_total", INSTANCE), "{{instance}}")]),
        Graph("Memory", memory, "bytes", [(f"process_resident_memory_bytes{{{INSTANCE}}}", "{{instance}}")]),
        Graph(
            "Helper threads that work", "Below 1: a thread waits to start again.", "short",
            [(f"lowmark_thread_up{{{INSTANCE}}}", "{{thread}} {{instance}}")],
        ),
        Graph(
            "Kafka away", "Seconds for which no broker has answered.", "s",
            [(f"lowmark_kafka_unreachable_seconds{{{INSTANCE}}}", "{{instance}}")],
        ),
    )  # fmt: skip


CAPTURE = Board(
    "capture", "lowmark: capture hosts", "What the capture processes receive, lose, hold and send.",
    (
        ("instance", "label_values(lowmark_frames_received_total, instance)"),
        ("source", f"label_values(lowmark_frames_received_total{{{INSTANCE}}}, source)"),
    ),
    {
        "Packets": (
            Graph("Frames received", "By source.", "pps", [by_source("lowmark_frames_received_total")]),
            Graph(
                "Frames dropped by the kernel", "The ring had no room: windows say lossy: dropped.", "pps",
                [by_source("lowmark_frames_dropped_total")],
            ),
            Graph(
                "Frames skipped", "Frames that carry no usable IP packet, by reason.", "pps",
                [(per("reason", "lowmark_frames_skipped_total", SOURCE), "{{reason}}")], stacked=True,
            ),
            Graph(
                "Shares of a fan-out",
                "Share of each thread's source in the packets of its interface. Equal shares are best.",
                "percentunit", [(_SHARE, "{{source}} of {{configured}} {{instance}}")],
            ),
            Graph("Bytes read from files", "By source.", "Bps", [by_source("lowmark_capture_read_bytes_total")]),
            Graph(
                "Damage and merged frames",
                "Parts of captures that cannot be read; frames that offloading merged from several packets.", "ops",
                [
                    by_source("lowmark_capture_damaged_total", "damage"),
                    by_source("lowmark_frames_merged_total", "merged"),
                ],
            ),
        ),
        "Ring": (
            Graph(
                "Ring filled",
                "Share of the ring that lowmark has not finished with. At 100% the kernel drops frames.", "percentunit",
                [(f"lowmark_ring_filled_bytes{{{SOURCE}}} / lowmark_ring_bytes", "{{source}} {{instance}}")],
            ),
            Graph("Freezes", "How often the ring was full.", "ops", [by_source("lowmark_ring_freezes_total")]),
        ),
        "Progress": (
            Graph(
                "Low-watermark behind the clock", "Windows close no sooner than this.", "s",
                [(f"lowmark_low_watermark_lag_seconds{{{SOURCE}}}", "{{source}} {{instance}}")],
            ),
            Graph(
                "Late packets",
                "Share of the packets that came later than the declared disorder allows.", "percentunit",
                [(_LATE, "{{source}} {{instance}}")],
            ),
            Graph(
                "Measured disorder", "The present bound, where disorder is measured.", "s",
                [(f"lowmark_disorder_bound_seconds{{{SOURCE}}}", "{{source}} {{instance}}")],
            ),
            Graph(
                "Tuples", "Packets decoded; per node, tuples left out by WHERE and tuples in partials.", "pps",
                [
                    by_source("lowmark_packets_decoded_total", "decoded"),
                    by_source("lowmark_tuples_filtered_total", "filtered"),
                    by_source("lowmark_tuples_in_partials_total", "in partials"),
                ],
            ),
        ),
        "Tables": (
            Graph(
                "Slots in use", "Share of the table's slots that hold a partial.", "percentunit",
                [(f"lowmark_groups_resident{{{SOURCE}}} / lowmark_table_slots", "{{source}} {{node}}")],
            ),
            Graph(
                "Collisions", "Share of the tuples for which a partial left because of a collision.", "percentunit",
                [(f"lowmark_table_collisions_ratio{{{SOURCE}}}", "{{source}} {{node}}")],
            ),
            Graph(
                "Slots wanted",
                "Wanted size divided by the present size. Above 1, a larger table would be faster.", "short",
                [(f"lowmark_table_slots_wanted{{{SOURCE}}} / lowmark_table_slots", "{{source}} {{node}}")],
            ),
            Graph(
                "Partials sent", "How they left the table.", "ops",
                [
                    by_source("lowmark_partials_flushed_total", "pane ended"),
                    by_source("lowmark_partials_evicted_total", "collision"),
                    by_source("lowmark_partials_straight_total", "straight"),
                ],
                stacked=True,
            ),
        ),
        "Queue to Kafka": (
            Graph(
                "Age of the queue", "For how long the oldest record of a topic has waited.", "s",
                [(f"lowmark_queue_age_seconds{{{INSTANCE}}}", "{{topic}} {{instance}}")],
            ),
            Graph(
                "Bytes queued", "All bytes that wait for Kafka, and the part that waits on disk.", "bytes",
                [
                    (f"sum by (instance) (lowmark_queue_bytes{{{INSTANCE}}})", "{{instance}}"),
                    (f"sum by (instance) (lowmark_queue_disk_bytes{{{INSTANCE}}})", "{{instance}}, on disk"),
                ],
            ),
            Graph("Sent to Kafka", "What Kafka has acknowledged.", "Bps", [by_topic("lowmark_kafka_bytes_total")]),
            Graph(
                "Tuples given up", "The queue was full: windows say lossy: given-up.", "pps",
                [by_source("lowmark_tuples_given_up_total")],
            ),
            Graph(
                "Topics that fail", "For how long Kafka has taken no record of a topic.", "s",
                [(f"lowmark_topic_failing_seconds{{{INSTANCE}}}", "{{topic}} {{instance}}")],
            ),
            Graph(
                "Producers replaced", "Clients of Kafka that were replaced because they had failed.", "ops",
                [by_topic("lowmark_producer_restarts_total")],
            ),
        ),
        "Process": process("Cores in use.", "Resident memory, which includes tables, rings and queue."),
    },
)  # fmt: skip

JOB = Board(
    "job", "lowmark: the job", "What the Spark job reads, how long it takes, and what it waits for.",
    (("instance", "label_values(lowmark_micro_batch_duration_seconds_count, instance)"),),
    {
        "Micro-batches": (
            Graph(
                "Duration", "From the start of the work until results are visible.", "s",
                quantiles("lowmark_micro_batch_duration_seconds", INSTANCE),
            ),
            Graph(
                "Phases", "Share of the time that Spark spends in each phase. 1 is all of the time.", "percentunit",
                [(per("phase", "lowmark_micro_batch_phase_seconds_total", INSTANCE), "{{phase}}")], stacked=True,
            ),
            Graph(
                "Micro-batches", "Micro-batches per second.", "ops",
                [(rate("lowmark_micro_batch_duration_seconds_count", INSTANCE), "{{instance}}")],
            ),
            Graph("State written", "By stage.", "Bps", [by_stage("lowmark_state_written_bytes_total")]),
        ),
        "Input": (
            Graph("Partials merged", "By stage.", "ops", [by_stage("lowmark_partials_merged_total")]),
            Graph("Tuples merged", "By stage.", "pps", [by_stage("lowmark_tuples_merged_total")]),
            Graph(
                "Records not used", "Duplicates and fenced records do no harm; a missing one is a loss.", "ops",
                [
                    by_stage("lowmark_records_missing_total", "missing"),
                    by_stage("lowmark_records_duplicate_total", "duplicate"),
                    by_stage("lowmark_records_fenced_total", "fenced"),
                ],
            ),
            Graph(
                "Tuples not merged",
                "Late tuples, tuples of unlisted sources, and tuples that a restarted file source sent again.", "pps",
                [
                    by_stage("lowmark_tuples_after_close_total", "late"),
                    by_stage("lowmark_tuples_unlisted_total", "unlisted"),
                    by_stage("lowmark_tuples_replayed_total", "replayed"),
                ],
            ),
            Graph(
                "Dead letters", "Records that the job could not use, by reason.", "ops",
                [(per("reason", "lowmark_dead_letters_total", INSTANCE), "{{reason}}")], stacked=True,
            ),
        ),
        "Sources": (
            Graph(
                "Silence", "Seconds since Kafka took the newest record of a source.", "s",
                [(f"lowmark_source_silent_seconds{{{INSTANCE}}}", "{{source}}")],
            ),
            Graph(
                "Sources that windows wait for", "Number of buckets whose frontier a source holds back.", "short",
                [(f"sum by (source) (lowmark_source_awaited{{{INSTANCE}}})", "{{source}}")],
            ),
            Graph(
                "Excluded sources", "1: no window waits for the source, and windows say lossy: excluded.", "short",
                [(f"max by (stream, source) (lowmark_source_excluded{{{INSTANCE}}})", "{{source}} of {{stream}}")],
            ),
            Graph(
                "Open panes", "Panes between the frontier and the last tuple, in the bucket that has most.", "short",
                [(f"lowmark_panes_open{{{INSTANCE}}}", "{{stage}}")],
            ),
        ),
        "Process": process(
            "Cores in use by the driver's Python; Spark's Java and workers are not included.",
            "Resident memory of the driver's Python.",
        ),
    },
)  # fmt: skip

QUERIES = Board(
    "queries", "lowmark: queries", "Whether results are exact, complete and in time.",
    (("query", "label_values(lowmark_result_rows_total, query)"),),
    {
        "Verdicts": (
            Graph(
                "Windows completed", "Windows by verdict, counted in each bucket.", "ops",
                [(per("query, verdict", _WINDOWS, QUERY), "{{query}} {{verdict}}")],
            ),
            Graph(
                "Lossy windows", "Share of the windows, by reason.", "percentunit",
                [(_LOSSY, "{{query}} {{reason}}")], stacked=True,
            ),
            Graph(
                "Amendments", "Windows that became lossy after they were final, by reason.", "ops",
                [(per("query, reason", "lowmark_windows_amended_total", QUERY), "{{query}} {{reason}}")],
            ),
            Graph("Corrections", "Written for closed windows.", "ops", [by_query("lowmark_corrections_total")]),
        ),
        "Time": (
            Graph(
                "Frontier behind the clock", "How far the frontier of a query is behind the clock.", "s",
                [(f"max by (query) (lowmark_frontier_lag_seconds{{{QUERY}}})", "{{query}}")],
            ),
            Graph(
                "Delay of results", "From the time up to which a query is complete until its results are visible.", "s",
                quantiles("lowmark_result_delay_seconds", QUERY, "query"),
            ),
            Graph(
                "Open windows", "Windows that hold tuples and are not complete; an upper bound.", "short",
                [(f"sum by (query) (lowmark_windows_open{{{QUERY}}})", "{{query}}")],
            ),
            Graph(
                "Quarantined queries",
                "1: the query has failed or reached a limit, and the job runs on without it.", "short",
                [(f"max by (query) (lowmark_query_quarantined{{{QUERY}}})", "{{query}}")],
            ),
        ),
        "Rows": (
            Graph("Result rows", "Written to the result topics.", "ops", [by_query("lowmark_result_rows_total")]),
            Graph("Rows of late tuples", "Of queries with late = emit.", "ops", [by_query("lowmark_late_rows_total")]),
            Graph("Rows between buckets", "Sent through exchanges.", "ops", [by_query("lowmark_exchange_rows_total")]),
        ),
    },
)  # fmt: skip

BOARDS = (CAPTURE, JOB, QUERIES)


def made(board: Board) -> str:
    """The dashboard's file."""
    numbers = count(1)
    built = (
        Dashboard(board.title)
        .uid(f"lowmark-{board.name}")
        .description(board.description)
        .tags(["lowmark"])
        .timezone("utc")
        .time("now-1h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(DashboardLink("lowmark").type(DashboardLinkType.DASHBOARDS).tags(["lowmark"]).keep_time(True))
        .with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for name, values in board.variables:
        built.with_variable(
            QueryVariable(name)
            .datasource(_DATASOURCE)
            .query({"qryType": 1, "query": values, "refId": "PrometheusVariableQueryEditor-VariableQuery"})
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .current(VariableOption(text="All", value="$__all"))
        )
    for title, graphs in board.rows.items():
        built.with_row(Row(title).id(next(numbers)))
        for graph in graphs:
            built.with_panel(_panel(graph).id(next(numbers)))
    return json.dumps(built.build(), cls=JSONEncoder, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _panel(graph: Graph) -> Panel:
    legend = VizLegendOptions().display_mode(common.LegendDisplayMode.LIST).placement(common.LegendPlacement.BOTTOM)
    panel = (
        Panel()
        .title(graph.title)
        .description(graph.description)
        .datasource(_DATASOURCE)
        .unit(graph.unit)
        .span(12)
        .height(8)
        .min(0)
        .fill_opacity(30 if graph.stacked else 0)
        .show_points(common.VisibilityMode.NEVER)
        .legend(legend.show_legend(True))
        .tooltip(VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    )
    if graph.stacked:
        panel.stacking(StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    for letter, (expr, name) in zip(ascii_uppercase, graph.lines, strict=False):
        panel.with_target(Dataquery().ref_id(letter).datasource(_DATASOURCE).expr(expr).legend_format(name).range())
    return panel


if __name__ == "__main__":
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(made(board), encoding="utf-8")
