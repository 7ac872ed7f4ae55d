"""A job in a process of its own. Run as a script, it can kill itself right before or after a transaction's commit."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

_COLLECTOR = "-XX:+UseSerialGC"  # takes less CPU time of so short a life than the one that Java chooses
_ROOT = Path(__file__).parents[2]

PATIENCE_S = 500.0
"""What is waited for comes in seconds; on a machine that is busy with other things, in minutes."""


class JobProcess:
    """`die` is `before:N` or `after:N`: with the N-th commit."""

    def __init__(self, config: Path, *options: str, die: str = "", python_path: str = "") -> None:
        path = os.pathsep.join(part for part in (python_path, str(_ROOT)) if part)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(config), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "TEST_DIE": die, "JDK_JAVA_OPTIONS": _COLLECTOR},
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> JobProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())

    @property
    def pid(self) -> int:
        return self._process.pid

    def peak_bytes(self) -> dict[str, int]:
        """By name of the program: the most memory that any of its processes that live now has had of its own."""
        peaks: dict[str, int] = {}
        for pid in descendants(self.pid):
            try:
                status = dict(line.split(":", 1) for line in (Path("/proc") / str(pid) / "status").open())
            except OSError:
                continue  # it has just ended
            if "VmHWM" in status:
                name, peak = status["Name"].strip(), int(status["VmHWM"].split()[0]) * 1024
                peaks[name] = max(peaks.get(name, 0), peak)
        return peaks

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def url(self) -> str:
        """Of the endpoint, once the query runs."""
        await_true(lambda: bool(re.search(r"http://\S+/metrics", self.said)) or self._process.poll() is not None)
        found = re.search(r"(http://\S+)/metrics", self.said)
        assert found is not None, self.said
        return found[1]

    def wait(self) -> int:
        """The exit code; all that it has said is in `lines` then."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join(10)
        return code

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def descendants(root: int) -> list[int]:
    found = [root]
    for pid in found:  # grows while it is read
        with contextlib.suppress(OSError):  # it has just ended
            for task in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found[1:]


def await_true(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s"
        time.sleep(0.02)


def _arm(die: str) -> None:
    """Let the sink's process be killed around its N-th commit."""
    from highlevel.spark.sink.transaction import TransactionalSink

    moment, _, number = die.partition(":")
    left = int(number)
    ask = TransactionalSink._ask

    def deadly(self: TransactionalSink, call: Callable[..., object], *arguments: object) -> object:
        nonlocal left
        if getattr(call, "__name__", "") != "commit_transaction":
            return ask(self, call, *arguments)
        left -= 1
        if left == 0 and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = ask(self, call, *arguments)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    TransactionalSink._ask = deadly  # type: ignore[method-assign, assignment]


def _main() -> int:
    from lowmark.app.config.file import load_config
    from lowmark.app.failures import failure_of
    from lowmark.app.job.process import NewGeneration, run_job

    if os.environ["TEST_DIE"]:
        _arm(os.environ["TEST_DIE"])
    began = time.monotonic()

    def progress(text: str) -> None:
        print(f"{time.monotonic() - began:.1f} {text}", flush=True)

    options = sys.argv[2:]
    try:
        return run_job(
            load_config(Path(sys.argv[1])), queries=None, master=None, until_last="--until-last" in options,
            new_generation=NewGeneration("--repeat-rows" in options) if "--new-generation" in options else None,
            progress=progress,
        )  # fmt: skip
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        print(failure.text, flush=True)
        return failure.exit_code


if __name__ == "__main__":
    sys.exit(_main())
