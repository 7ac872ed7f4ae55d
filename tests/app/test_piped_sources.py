"""A named pipe is left to the capture that is to read it: who only looks would take its bytes, or end its writer."""

from __future__ import annotations

import os
from pathlib import Path

from lowmark.app.capture.sources import _earliest_ns
from lowmark.app.config.checks import _captures
from lowmark.app.config.file import load_config
from tests.naive.frames import Spec, frame, write_pcap

CONFIG = """
[kafka]
bootstrap = "127.0.0.1:1"
[streams.Main]
[sources.file]
stream = "Main"
file = "a.pcap"
[sources.pipe]
stream = "Main"
file = "pipe"
[queries.count]
sql = "SELECT count(*) [RANGE 10 s] FROM Main"
"""


def test_neither_check_nor_rebase_opens_a_pipe(tmp_path: Path) -> None:
    data = write_pcap(tmp_path / "a.pcap", [frame(Spec(ts=second * 10**9)) for second in (7, 5)]).read_bytes()
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(writer, data)
    (tmp_path / "lowmark.toml").write_text(CONFIG)
    config = load_config(tmp_path / "lowmark.toml")
    assert [result.problem for result in _captures(config)] == [None]
    assert _earliest_ns(config, ["file", "pipe"]) == 5 * 10**9
    assert os.read(writer, 2 * len(data)) == data
    os.close(writer)
