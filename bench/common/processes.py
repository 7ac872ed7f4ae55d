"""Processes that are measured: what one took in all, and what a tree of them holds and has taken over time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

__all__ = ["PARTS", "Child", "Sample", "Sampler", "Usage", "child", "measured"]

ROOT = Path(__file__).resolve().parents[2]

_END_WITHIN_S = 40.0
_LOOK_EVERY_S = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_VANISHED_S = 0.1  # that the CPU time of a tree goes back: more than is rounded away

PARTS = ("main", "java", "python")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a command and all its descendants. `peak_bytes` is the largest resident set of one of them."""

    cpu_s: float
    wall_s: float
    peak_bytes: int


def measured(command: Sequence[str | Path], *, timeout_s: float, output: Path | None = None) -> Usage:
    """Run the command to its end, with its standard output in a file. RuntimeError with its last words if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        figures, errors = Path(folder) / "figures", Path(folder) / "errors"
        wrapper = [sys.executable, "-m", "bench.reaped", str(figures), *map(str, command)]
        with (output or Path(os.devnull)).open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                wrapper, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT, start_new_session=True
            )
            try:
                status = process.wait(timeout_s)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)  # what a script has started does not end with it
                process.wait()
                raise
        if status:
            said = "\n".join(errors.read_text(errors="replace").splitlines()[-12:])
            raise RuntimeError(f"{command[0]} ended with status {status}:\n{said}")
        return Usage(**json.loads(figures.read_text()))


@dataclass(frozen=True, slots=True)
class Child:
    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])

    def await_saying(self, word: str, timeout_s: float) -> None:
        """Until the word stands in what it has printed."""
        deadline = time.monotonic() + timeout_s
        while word not in self.log.read_text(errors="replace"):
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.process.args!r} has not said {word!r} in {timeout_s:.0f} s:\n{self.said()}")
            time.sleep(_LOOK_EVERY_S)

    def wait(self, timeout_s: float) -> None:
        """Until it ends; RuntimeError with its last words if it fails."""
        if status := self.process.wait(timeout_s):
            raise RuntimeError(f"{self.process.args!r} ended with status {status}:\n{self.said()}")

    def check(self) -> None:
        """RuntimeError when it has failed."""
        if self.process.poll() not in (None, 0):
            raise RuntimeError(f"{self.process.args!r} ended with status {self.process.returncode}:\n{self.said()}")


@contextmanager
def child(log: Path, *arguments: str | Path) -> Iterator[Child]:
    """`python arguments…` in a process of its own, ended when the block is left."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
    try:
        yield Child(process, log)
    finally:
        process.terminate()
        try:
            process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass(frozen=True, slots=True)
class Sample:
    """By part of the tree: `main` is its root, `java` a JVM below it, `python` the rest. CPU seconds are since the
    start, and those of processes that have ended are their parents'."""

    at: float  # time.time()
    cpu_s: Mapping[str, float]
    own_bytes: Mapping[str, int]  # resident, without pages of files


@dataclass
class Sampler:
    """Looks at a tree of processes from time to time, from a thread of its own, while its block runs."""

    pid: int
    every_s: float = 0.2
    samples: list[Sample] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def cpu_between(self, first: float, last: float) -> dict[str, float]:
        """CPU seconds of each part in between, as the straight lines between the samples around. Where processes of the
        tree have begun to end before `last`, what comes after is taken to be as what came before."""
        samples = self._whole()
        at = [sample.at for sample in samples]
        until = min(last, at[-1])
        spent = {}
        for part in PARTS:
            seconds = [sample.cpu_s.get(part, 0.0) for sample in samples]
            known = float(np.interp(until, at, seconds) - np.interp(first, at, seconds))
            spent[part] = known * (last - first) / (until - first)
        return spent

    def _whole(self) -> list[Sample]:
        """The samples before time of processes vanished with them: who ends its children need not wait for them."""
        spent = [sum(sample.cpu_s.values()) for sample in self.samples]
        ending = (at for at, (before, after) in enumerate(pairwise(spent), 1) if after < before - _VANISHED_S)
        return self.samples[: next(ending, len(spent))]

    def _run(self) -> None:
        while not self._stop.wait(self.every_s):
            if (sample := _sample(self.pid)) is not None:
                self.samples.append(sample)


def _sample(root: int) -> Sample | None:
    """None when the process has ended."""
    parents: dict[int, int] = {}
    found: dict[int, tuple[str, float]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # it has just ended
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        parents[int(entry.name)] = int(fields[1])
        found[int(entry.name)] = name, sum(map(int, fields[11:15])) * _TICK_S
    if root not in found:
        return None
    cpu_s, own_bytes = dict[str, float](), dict[str, int]()
    for pid in _tree(root, parents):
        name, spent = found[pid]
        part = "main" if pid == root else "java" if name == "java" else "python"
        cpu_s[part] = cpu_s.get(part, 0.0) + spent
        try:
            _, resident, shared, *_ = (Path("/proc") / str(pid) / "statm").read_text().split()
        except OSError:
            continue
        own_bytes[part] = own_bytes.get(part, 0) + (int(resident) - int(shared)) * _PAGE
    return Sample(time.time(), cpu_s, own_bytes)


def _tree(root: int, parents: Mapping[int, int]) -> list[int]:
    members = [root]
    for member in members:  # grows while it is read
        members += [pid for pid, parent in parents.items() if parent == member]
    return members
