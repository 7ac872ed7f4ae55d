"""`lowmark query`: answers a query over captures and interfaces in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowlevel.config import Flush, FlushOrder
from lowmark.app.commands.options.expected import Groups, Rates, Selectivities, expected_of, known_names
from lowmark.app.commands.options.joins import (
    JoinBuffer,
    JoinDisk,
    JoinLimit,
    JoinMemory,
    PairNs,
    Scrambling,
    joins_of,
)
from lowmark.app.commands.options.limits import ExpireIdle, LimitGroups, limits_of
from lowmark.app.imports import importing
from lowmark.app.local.formats import Format
from lowmark.query.options import DEFAULT_JOINS, DEFAULT_LIMITS, Late, Strategy, Vocabulary

__all__ = ["query", "query_text"]

_EXAMPLES = """\
Examples:

\b
  lowmark query -r capture.pcap "SELECT ts, srcIP, destIP FROM Main WHERE tcp_flags & 18 = 2"
  lowmark query -r capture.pcap "SELECT srcIP, count(*), sum(len) [RANGE 1 minute] FROM Main GROUP BY srcIP"
  lowmark query -r M1=a.pcap -r M1=b.pcap.gz -r M2=c.pcapng --format jsonl -f query.sql
  lowmark query -i eth0 "SELECT count(*) [RANGE 10 seconds] FROM Main"
  tcpdump -w - -i eth0 | lowmark query -r - "SELECT count(*) [RANGE 10 seconds] FROM Main"

Standard output receives rows only; progress and the audit go to standard error.

Exit codes: 0; 2 for a bad query or option; 3 for unreadable input (the answer covers what was readable before it); 4
when a window is lossy.
"""


def query(
    sql: Annotated[str | None, typer.Argument(metavar="SQL", show_default=False, help="The query's text.")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE.sql", help="Read the query from a file.")
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option(
            "-r",
            metavar="[NAME=]FILE",
            help="Read stream NAME from a capture: pcap or pcapng, also .gz, .xz and .zst; - is standard input. The "
            "files of a folder or a pattern ('dir/*.pcap') are read as one capture, in the order of their names. "
            "Without NAME, the capture feeds every stream of the query. With the same NAME twice, the stream has two "
            "sources.",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="At the end of a file, wait for more until Ctrl-C: for the file to grow, or for the next file of a "
            "folder or pattern. While no data arrives, windows stay open: only the next packet closes them.",
        ),
    ] = False,
    interface: Annotated[
        list[str] | None,
        typer.Option(
            "-i",
            metavar="[NAME=]IFACE",
            help="Capture stream NAME from an interface, or from all interfaces (any), until Ctrl-C. Needs "
            "CAP_NET_RAW. NAME may be left out or repeated, as with -r.",
        ),
    ] = None,
    fanout: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=64, help="Number of threads that share the packets of an interface."),
    ] = 1,
    promiscuous: Annotated[
        bool, typer.Option("--promiscuous", help="Also capture packets for other hosts, where the interface sees them.")
    ] = False,
    kernel_filter: Annotated[
        bool,
        typer.Option(
            "--kernel-filter",
            help="Let the kernel discard packets of an interface that WHERE would discard, as far as IP version, "
            "protocol, addresses and ports decide it. No count includes these packets.",
        ),
    ] = False,
    disorder: Annotated[
        str | None,
        typer.Option(
            metavar="DISORDER",
            help="How far packets may be out of order: scan (default for files; reads them twice to find out), ordered "
            "(default for standard input), 'within 50 ms' (default for interfaces), 'within 500 tuples', 'measured "
            "99.9%' (a bound that about 99.9% of the packets so far have kept).",
        ),
    ] = None,
    flush: Annotated[
        Flush,
        typer.Option(
            help="How groups leave the table after their pane has ended: slow (a few with each batch of packets), lazy "
            "(at collisions) or full (all at once). Changes no result."
        ),
    ] = Flush.SLOW,
    flush_every: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="With --flush slow: flush one slot after every N packets. 0: flush all groups of a pane within 1 s "
            "of its end, or within the length of a pane if that is shorter.",
        ),
    ] = 0,
    flush_panes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Flush all groups of a pane within N panes of its end.")
    ] = 2,
    order: Annotated[
        FlushOrder,
        typer.Option(
            help="Order in which groups of different panes leave the table. preserved: by pane, as systems that "
            "process in order need; for comparison only, because it is slower. Changes no result."
        ),
    ] = FlushOrder.ANY,
    late: Annotated[
        Late,
        typer.Option(
            help="What to do with late packets (further out of order than --disorder allows): count them only, emit "
            "each as a row, or correct (report what they change in windows already answered). They are counted in any "
            "case. Rows and corrections are JSON lines on standard error."
        ),
    ] = Late.COUNT,
    strategy: Annotated[
        Strategy,
        typer.Option(
            help="How groups of open windows are kept: wid (once in every window), paned (once in every pane), adapt "
            "(either way, chosen for each group) or auto (the way that costs least). Changes no result."
        ),
    ] = Strategy.AUTO,
    rate: Rates = None,
    selectivity: Selectivities = None,
    groups: Groups = None,
    limit_groups: LimitGroups = DEFAULT_LIMITS.groups,
    expire_idle: ExpireIdle = None,
    join_memory: JoinMemory = DEFAULT_JOINS.memory,
    join_buffer: JoinBuffer = None,
    join_limit: JoinLimit = None,
    join_disk: JoinDisk = DEFAULT_JOINS.disk_mib,
    scrambling: Scrambling = None,
    pair_ns: PairNs = DEFAULT_JOINS.pair_ns,
    table: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Size of each source's table: a number of groups (a power of two), or memory such as 64M.",
        ),
    ] = "1048576",
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="Format of the rows. Default: a table on a terminal, JSON lines elsewhere.",
            case_sensitive=False,
            show_default=False,
        ),
    ] = None,
    names: Annotated[
        Vocabulary,
        typer.Option(
            help="Names of the columns: lowmark's own, or those of ECS (source.ip), OpenTelemetry (source.address) or "
            "IPFIX (sourceTransportPort). An alias stays as it is. Values are the same.",
            case_sensitive=False,
        ),
    ] = Vocabulary.LOWMARK,
    output: Annotated[Path | None, typer.Option("-o", metavar="FILE", help="Write the rows to this file.")] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print no progress and no audit.")] = False,
) -> None:
    """Answer a query over capture files or interfaces, without Kafka or Spark."""
    text, name = query_text(sql, file)
    # Imported late: loading kernels and operators is slow, and --help and a mistyped option need none of them.
    with importing():
        from lowmark.app.local.answer import QueryRequest, answer

    expected = expected_of(rate, selectivity, groups)
    limits = limits_of(limit_groups, expire_idle)
    joins = joins_of(join_memory, join_buffer, join_limit, join_disk, scrambling, pair_ns)
    request = QueryRequest(
        sql=text, name=name, read=tuple(read or ()), follow=follow, interfaces=tuple(interface or ()),
        fanout=fanout,
        promiscuous=promiscuous, kernel_filter=kernel_filter, disorder=disorder, flush=flush,
        flush_every=flush_every, flush_panes=flush_panes, order=order, late=late,
        strategy=strategy, expected=expected, limits=limits, joins=joins, table=table, format=format_, names=names,
        output=output, quiet=quiet,
    )  # fmt: skip
    with known_names():
        code = answer(request)
    raise typer.Exit(code)


query.__doc__ = f"{query.__doc__}\n\n{_EXAMPLES}"


def query_text(sql: str | None, file: Path | None) -> tuple[str, str]:
    """The query's text and its name."""
    if (sql is None) == (file is None):
        raise typer.BadParameter("give the query as an argument or as a file with -f: exactly one of the two")
    if sql is not None:
        return sql, "query"
    assert file is not None
    try:
        return file.read_text(encoding="utf-8"), file.stem
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise typer.BadParameter(f"cannot read {file}: {reason}") from None
