"""`lowmark query`: a query over captures and interfaces, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowlevel.config import Flush, Order
from lowmark.app.commands.expected_options import Groups, Rates, Selectivities, expected_of, known_names
from lowmark.app.commands.limit_options import ExpireIdle, LimitGroups, limits_of
from lowmark.app.local.formats import Format
from lowmark.query.options import DEFAULT_LIMITS, Late, Strategy

__all__ = ["query", "query_text"]

_EXAMPLES = """\
Examples:

\b
  lowmark query -r capture.pcap "SELECT ts, srcIP, destIP FROM Main WHERE tcp_flags & 18 = 2"
  lowmark query -r capture.pcap "SELECT srcIP, count(*), sum(len) [RANGE 1 minute] FROM Main GROUP BY srcIP"
  lowmark query -r M1=a.pcap -r M1=b.pcap.gz -r M2=c.pcapng --format jsonl -f query.sql
  lowmark query -i eth0 "SELECT count(*) [RANGE 10 seconds] FROM Main"
  tcpdump -w - -i eth0 | lowmark query -r - "SELECT count(*) [RANGE 10 seconds] FROM Main"

Rows go to standard output and nothing else; progress and the audit go to standard error.

Exit codes: 0; 2 for a bad query or option; 3 for unreadable input (what was readable before it is answered); 4 when a
window is lossy.
"""


def query(
    sql: Annotated[str | None, typer.Argument(metavar="[SQL]", show_default=False, help="The query's text.")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE.sql", help="Read the query from a file.")
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option(
            "-r",
            metavar="[NAME=]FILE",
            help="Read stream NAME from a capture (pcap or pcapng, also .gz, .xz and .zst; - is standard input), or "
            "from those of a folder or a pattern ('dir/*.pcap') as one, in the order of their names. Without a name it "
            "stands for every stream of the query. Given twice under one name: a stream of two sources.",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="At the end of what is read wait for more, until Ctrl-C: a file that grows, or the next one of a "
            "folder or pattern. In a lull of it nothing is promised by the clock: the next packet closes windows.",
        ),
    ] = False,
    interface: Annotated[
        list[str] | None,
        typer.Option(
            "-i",
            metavar="[NAME=]IFACE",
            help="Capture stream NAME from an interface, or from all of them (any), until Ctrl-C. Takes CAP_NET_RAW. "
            "Names and repetition are as with -r.",
        ),
    ] = None,
    fanout: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=64, help="Threads among which the packets of an interface are divided."),
    ] = 1,
    promiscuous: Annotated[
        bool, typer.Option("--promiscuous", help="Capture packets for other hosts too, where an interface sees them.")
    ] = False,
    kernel_filter: Annotated[
        bool,
        typer.Option(
            "--kernel-filter",
            help="Let the kernel leave out packets of an interface that WHERE would not keep, as far as it can tell by "
            "version, protocol, addresses and ports. They are in no count then.",
        ),
    ] = False,
    disorder: Annotated[
        str | None,
        typer.Option(
            metavar="DISORDER",
            help="How far packets may be out of order: scan (files: read twice, exact; the default), ordered (the "
            "default on standard input), 'within 50 ms' (the default on interfaces), 'within 500 tuples', 'measured "
            "99.9%' (what so many of the packets kept to so far).",
        ),
    ] = None,
    flush: Annotated[Flush, typer.Option(help="How ended panes leave the table. Changes no result.")] = Flush.SLOW,
    flush_every: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="With --flush slow: one slot after each so many packets; 0: as many as leave all within a second.",
        ),
    ] = 0,
    flush_panes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Panes within which all of an ended pane has left the table.")
    ] = 2,
    order: Annotated[
        Order,
        typer.Option(
            help="Preserved: a pane leaves the table before later ones, as systems need that process in order. For "
            "comparison: it is slower, and changes no result."
        ),
    ] = Order.ANY,
    late: Annotated[
        Late,
        typer.Option(
            help="What becomes of packets that come after their granule has ended, beside their being counted: emit "
            "tells each as a row of its own, correct what they change in windows that were answered. Both are JSON "
            "lines on standard error."
        ),
    ] = Late.COUNT,
    strategy: Annotated[
        Strategy,
        typer.Option(
            help="How groups of open windows are held: in their panes (paned), in every window (wid), by group in the "
            "one or the other (adapt), or as costs least. Changes no result."
        ),
    ] = Strategy.AUTO,
    rate: Rates = None,
    selectivity: Selectivities = None,
    groups: Groups = None,
    limit_groups: LimitGroups = DEFAULT_LIMITS.groups,
    expire_idle: ExpireIdle = None,
    table: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Of each source's table: groups that it has room for (a power of two), or memory such as 64M.",
        ),
    ] = "1048576",
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="How rows are written. On a terminal the default is a table, elsewhere JSON lines.",
            case_sensitive=False,
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", metavar="FILE", help="Write the rows to a file.")] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress and no audit.")] = False,
) -> None:
    """Answer a query over capture files or interfaces, without Kafka or Spark."""
    text, name = query_text(sql, file)
    expected = expected_of(rate, selectivity, groups)
    limits = limits_of(limit_groups, expire_idle)
    # Loading kernels and operators takes a moment that --help and a mistyped option need not wait for.
    from lowmark.app.local.answer import Request, answer

    request = Request(
        sql=text, name=name, read=tuple(read or ()), follow=follow, interfaces=tuple(interface or ()),
        fanout=fanout,
        promiscuous=promiscuous, kernel_filter=kernel_filter, disorder=disorder, flush=flush,
        flush_every=flush_every, flush_panes=flush_panes, order=order, late=late,
        strategy=strategy, expected=expected, limits=limits, table=table, format=format_,
        output=output, quiet=quiet,
    )  # fmt: skip
    with known_names():
        code = answer(request)
    raise typer.Exit(code)


query.__doc__ = f"{query.__doc__}\n\n{_EXAMPLES}"


def query_text(sql: str | None, file: Path | None) -> tuple[str, str]:
    """The query's text and its name."""
    if (sql is None) == (file is None):
        raise typer.BadParameter("give the query as an argument, or the file that holds it with -f")
    if sql is not None:
        return sql, "query"
    assert file is not None
    try:
        return file.read_text(encoding="utf-8"), file.stem
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise typer.BadParameter(f"cannot read {file}: {reason}") from None
