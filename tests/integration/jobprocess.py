"""A job in a process of its own. It can be killed right before or after the commit of a bucket's transaction."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

_COLLECTOR = "-XX:+UseSerialGC"  # takes less CPU time of so short a life than the one that Java chooses
_ROOT = Path(__file__).parents[2]

PATIENCE_S = 500.0
"""What is waited for comes in seconds; on a machine that is busy with other things, in minutes."""


class JobProcess:
    """`die` is `before:N` or `after:N`: with the N-th commit of a bucket. `part`: bytes of a part of a batch."""

    def __init__(self, config: Path, *options: str, die: str = "", python_path: str = "", part: int = 0) -> None:
        armed = str(Path(__file__).parent / "armed") if die or part else ""
        path = os.pathsep.join(part for part in (armed, python_path, str(_ROOT)) if part)
        self._counted = Path(tempfile.mkdtemp()) / "commits"
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(config), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": path,
                "TEST_DIE": die,
                "TEST_PART": str(part or ""),
                "TEST_COUNT": str(self._counted),
                "JDK_JAVA_OPTIONS": _COLLECTOR,
            },
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
    """Looks again after twice the time of a look, at most a second: what is waited for needs the processors, too."""
    deadline = (began := time.monotonic()) + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s"
        time.sleep(min(1.0, max(0.02, 2 * (time.monotonic() - began))))
        began = time.monotonic()


def _main() -> int:
    from lowmark.app.config.changes import ConfigChanges
    from lowmark.app.config.file import load_config
    from lowmark.app.exit_codes import failure_of
    from lowmark.app.job.process import Beginning, run_job

    os.environ["TEST_JOB"] = str(os.getpid())
    began = time.monotonic()

    def progress(text: str) -> None:
        print(f"{time.monotonic() - began:.1f} {text}", flush=True)

    path, *options = sys.argv[1:]
    changes = ConfigChanges(Path(path)) if "--reload-on-change" in options else None
    try:
        return run_job(
            load_config(Path(path)), queries=None, master=None, until_last="--until-last" in options,
            beginning=Beginning(
                "--new-generation" in options,
                "--repeat-rows" in options,
                frozenset(options[at + 1] for at, option in enumerate(options) if option == "--release"),
            ),
            progress=progress, changes=changes,
        )  # fmt: skip
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        print(failure.text, flush=True)
        return failure.exit_code


if __name__ == "__main__":
    sys.exit(_main())
