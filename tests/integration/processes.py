"""The command `lowmark` in a process of its own, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError

from prometheus_client.parser import text_string_to_metric_families

from tests.integration.jobprocess import PATIENCE_S, await_true

_ROOT = Path(__file__).parents[2]

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Command:
    """`lowmark arguments`, in a session of its own: whatever it starts is found again. Ends with the `with` block."""

    def __init__(self, *arguments: str, stdin: int = subprocess.DEVNULL, under: Sequence[str] = ()) -> None:
        """`under`: a command that runs the one behind it, in its own place."""
        self.process = subprocess.Popen(
            [*under, sys.executable, "-m", "lowmark", *arguments],
            cwd=_ROOT, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._said: dict[str, list[str]] = {"out": [], "error": []}
        self._readers = [
            threading.Thread(target=self._read, args=(name,), daemon=True, name=f"reader of {name}")
            for name in self._said
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str) -> None:
        stream = self.process.stdout if name == "out" else self.process.stderr
        assert stream is not None
        for line in stream:
            self._said[name].append(line.decode(errors="replace"))

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def out(self) -> str:
        return "".join(self._said["out"])

    @property
    def rows(self) -> list[dict[str, object]]:
        """The JSON lines of its output so far."""
        return [json.loads(line) for line in self.out.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def error(self) -> str:
        return "".join(self._said["error"])

    def url(self) -> str:
        """Of its health endpoint, once it has told."""
        await_true(lambda: bool(self._urls()) or self.process.poll() is not None)
        assert self._urls(), self.error
        return self._urls()[0]

    def _urls(self) -> list[str]:
        return re.findall(r"(http://\S+)/metrics", self.error)

    def wait(self) -> int:
        """The exit code; all that it has said is known then, and nothing of it runs any more."""
        code = self.process.wait(PATIENCE_S)
        await_true(lambda: not self.left_behind())
        for reader in self._readers:
            reader.join(10)
        return code

    def left_behind(self) -> list[int]:
        """Processes of its session."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != self.process.pid:
                try:
                    stat = (entry / "stat").read_text()
                except OSError:  # it has ended meanwhile
                    continue
                state, _parent, _group, session = stat.rpartition(")")[2].split()[:4]
                if int(session) == self.process.pid and state != "Z":
                    found.append(int(entry.name))
        return found


@dataclass(frozen=True)
class Page:
    status: int
    text: str

    @property
    def json(self) -> dict[str, str]:
        content: dict[str, str] = json.loads(self.text)
        return content


def get(url: str) -> Page:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return Page(answer.status, answer.read().decode())
    except HTTPError as error:
        return Page(error.code, error.read().decode())


def samples(text: str) -> Samples:
    """What a metrics page says: by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(of: Samples, name: str, **labels: str) -> float | None:
    return of.get((name, frozenset(labels.items())))
