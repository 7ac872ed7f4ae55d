"""`python -m bench.lists`: what a list in WHERE costs a packet, by the number of its constants.

Q8-1 over uniform IPv4 packets whose WHERE looks for a value in a list and lets each pass, against the same without a
WHERE. The constants are spread as the packets' addresses are, so that nobody could foretell where a search goes.
Repetitions are interleaved and the least CPU time of each counts. The figures and a plot go to bench/results.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.common.frames import Traffic
from bench.common.reports import RESULTS, Figure, describe_machine, write_csv
from bench.kernel import generated, nodes_of, packets_of, timed
from lowlevel.config import LowLevelConfig

_SQL = "SELECT srcIP, destIP, count(*), sum(len) [RANGE 1 minute] FROM Main {}GROUP BY srcIP, destIP"
_FORMS = {"addresses": "{}", "prefixes": "{}/24", "numbers": "{:d}"}


def measure_lists(results: Path, *, packets: int, groups: int, entries: Sequence[int], repeat: int) -> None:
    config, blocks = LowLevelConfig(slots=1 << 20), packets_of(Traffic(groups), packets)
    takers = {"none": (generated(nodes_of([_SQL.format("")]), config), blocks)}
    planned, compiled = {}, {}
    for form in _FORMS:
        for count in entries:
            name, sql = f"{count:,} {form}", _asked(form, count)
            began = time.process_time()
            nodes = nodes_of([sql])
            planned[name], began = time.process_time() - began, time.process_time()
            takers[name] = (generated(nodes, config), blocks)
            compiled[name] = time.process_time() - began
    least = timed(takers, repeat)
    rows = []
    print(f"no list: {least['none']:.1f} ns a packet; seconds are of CPU")
    for name in planned:
        ratio = least[name] / least["none"]
        print(f"{name:>18}: {least[name]:6.1f} ns a packet, {ratio:.2f} times no list; planned in "
              f"{planned[name]:.2f} s, its kernel made or loaded in {compiled[name]:.2f} s")  # fmt: skip
        rows.append((name, least[name], ratio, planned[name], compiled[name]))
    write_csv(results, "lists", ("list", "ns_a_packet", "ratio", "planned_s", "compiled_s"), rows)
    with Figure(results, "lists", "What a list in WHERE costs a packet") as axes:
        for form in _FORMS:
            axes.plot(entries, [least[f"{count:,} {form}"] / least["none"] for count in entries], "o-", label=form)
        axes.axhline(1, color="black", linestyle="--")
        axes.set_xscale("log")
        axes.set_xlabel("constants")
        axes.set_ylabel("time / time without a list")
        axes.legend()


def _asked(form: str, count: int) -> str:
    """No condition is left out of the kernel because of another one, so the second part hides nothing of the first."""
    field = "srcPort * 65536 + len" if form == "numbers" else "destIP"
    numbers = np.random.default_rng(count).integers(0, 1 << 32, count).tolist()
    constants = (number if form == "numbers" else IPv4Address(number) for number in numbers)
    listed = ", ".join(map(_FORMS[form].format, constants))
    return _SQL.format(f"WHERE {field} IN ({listed}) OR len > 0 ")


def _main(
    packets: Annotated[int, typer.Option(help="Packets of a repetition.")] = 500_000,
    groups: Annotated[int, typer.Option(help="Pairs of addresses.")] = 66_000,
    entries: Annotated[list[int] | None, typer.Option(help="Constants of a list (repeatable).")] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions; the least counts.")] = 5,
    results: Annotated[Path, typer.Option(help="Where CSV files and plots go.")] = RESULTS,
) -> None:
    describe_machine(results)
    measure_lists(results, packets=packets, groups=groups, entries=entries or [1, 10, 1_000, 100_000], repeat=repeat)


if __name__ == "__main__":
    typer.run(_main)
