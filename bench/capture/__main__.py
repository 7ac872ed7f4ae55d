"""`python -m bench.capture [peers|fig_8_7|flush|sources]`: what capture hosts do, measured.

Each command prints its figures and leaves them, with a plot, in bench/results; bench/README.md says what they show.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from bench.common.reports import RESULTS, describe_machine

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)

Results = Annotated[Path, typer.Option(help="Where CSV files and plots go.")]


@app.command()
def peers(
    few: Annotated[int, typer.Option(help="Packets of the smaller capture.")] = 1_000_000,
    many: Annotated[int, typer.Option(help="Packets of the larger; slow peers get a part of both.")] = 3_000_000,
    most: Annotated[int, typer.Option(help="Packets of the larger capture that lowmark itself is given.")] = 20_000_000,
    pairs: Annotated[list[int] | None, typer.Option(help="Pairs of addresses (repeatable).")] = None,
    repeat: Annotated[int, typer.Option(help="Runs of each; the least CPU time counts.")] = 1,
    snaplen: Annotated[int, typer.Option(help="Bytes captured of a packet, at most.")] = 64,
    keep: Annotated[bool, typer.Option(help="Leave the captures in the cache folder, and use what is there.")] = False,
    results: Results = RESULTS,
) -> None:
    """Packets per CPU-second of `lowmark query -r` against pmacctd, nfdump, softflowd, tcpdump, tshark and loops."""
    from bench.peers.packets import measure_peers

    describe_machine(results)
    measure_peers(
        results, few=few, many=many, most=most, pairs=pairs or [66_000, 520_000], repeat=repeat, snaplen=snaplen,
        keep=keep,
    )  # fmt: skip


@app.command("fig_8_7")
def fig_8_7(
    groups: Annotated[list[int] | None, typer.Option(help="Pairs of addresses, powers of two (repeatable).")] = None,
    rings: Annotated[list[int] | None, typer.Option(help="Packets that the ring holds (repeatable).")] = None,
    repeat: Annotated[int, typer.Option(help="Runs of each; the least disturbed counts.")] = 1,
    results: Results = RESULTS,
) -> None:
    """The highest rate without loss where order is kept and where it is not, by number of groups and size of ring."""
    from bench.capture.throughput import measure_throughput

    describe_machine(results)
    counts = groups or [1 << power for power in (14, 16, 17, 18, 19, 21)]
    measure_throughput(results, groups=counts, rings=rings or [1_024, 10_000, 100_000, 1_000_000], repeat=repeat)


@app.command()
def flush(
    groups: Annotated[int, typer.Option(help="Pairs of addresses.")] = 66_000,
    rate: Annotated[int, typer.Option(help="Packets a second of packet time.")] = 200_000,
    pane: Annotated[int, typer.Option(help="Seconds that a window takes, of which three pass.")] = 10,
    results: Results = RESULTS,
) -> None:
    """When the partials of a window leave the table after its end, by flush mode."""
    from bench.capture.emission import measure_emission

    describe_machine(results)
    measure_emission(results, groups=groups, rate=rate, pane_s=pane)


@app.command()
def sources(
    hosts: Annotated[list[int] | None, typer.Option(help="Numbers of hosts (repeatable).")] = None,
    packets: Annotated[int, typer.Option(help="Packets that the hosts see together.")] = 8_000_000,
    pairs: Annotated[int, typer.Option(help="Pairs of addresses, of which each host sees all.")] = 10_000,
    skew: Annotated[float, typer.Option(help="Seconds by which clocks are ahead or behind, at most.")] = 2.0,
    repeat: Annotated[int, typer.Option(help="Runs of each; the least CPU time counts.")] = 2,
    results: Results = RESULTS,
) -> None:
    """Packets per CPU-second of one query over many capture hosts of skewed clocks, and whether it is exact."""
    from bench.capture.hosts import measure_hosts

    describe_machine(results)
    counts = hosts or [1, 2, 4, 8, 16, 32]
    measure_hosts(results, hosts=counts, packets=packets, pairs=pairs, skew_s=skew, repeat=repeat)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
    app()
