"""A source that reads packets from a pipe, as they are sent."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.integration.processes import Command
from tests.naive.frames import Spec, frame, write_pcap

_HEADER = 24
"""Bytes before the first packet of a capture."""


class Pipe:
    """A source that sends these packets, and goes on when it is told to."""

    def __init__(self, stack: contextlib.ExitStack, config: Path, source: str, packets: Iterable[Spec]) -> None:
        command = Command("capture", "-c", str(config), "--source", source, stdin=subprocess.PIPE)
        self.capture = stack.enter_context(command)
        self._file = config.parent / f"{source}.pcap"
        self._write(packets, 0)

    def send(self, packets: Iterable[Spec]) -> None:
        self._write(packets, _HEADER)

    def end(self) -> None:
        """No more packets come: the capture ends, well."""
        assert self.capture.process.stdin is not None
        self.capture.process.stdin.close()
        assert self.capture.wait() == 0, self.capture.error

    def _write(self, packets: Iterable[Spec], skipped: int) -> None:
        assert self.capture.process.stdin is not None
        self.capture.process.stdin.write(write_pcap(self._file, map(frame, packets)).read_bytes()[skipped:])
        self.capture.process.stdin.flush()
