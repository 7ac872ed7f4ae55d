"""A capture whose tables are too small says so while it runs, and which size would do."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from lowmark.app.traffic import TrafficSpec, write_capture
from tests.integration.heads import CAPTURE
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command, get, samples

pytestmark = pytest.mark.slow

CONFIG = (
    CAPTURE
    + """\
table = {{ slots = 64 }}
[streams.Main]
[sources.pipe]
stream = "Main"
file = "-"
[queries.pairs]
sql = "SELECT srcIP, destIP, count(*) [RANGE 10 minutes] FROM Main GROUP BY srcIP, destIP"
"""
)


def test_while_it_runs(broker: str, tmp_path: Path) -> None:
    config = tmp_path / "lowmark.toml"
    config.write_text(CONFIG.format(broker=broker, prefix=uuid4().hex[:8]))
    write_capture(tmp_path / "many.pcap", TrafficSpec(packets=40_000, duration_ns=10**9, groups=500))
    with Command("capture", "-c", str(config), stdin=subprocess.PIPE) as capture:
        assert capture.process.stdin is not None
        capture.process.stdin.write((tmp_path / "many.pcap").read_bytes())
        capture.process.stdin.flush()
        await_true(lambda: "is too small for the groups of a pane" in capture.error)
        (said,) = re.findall(r"slots = (\d+) in \[capture\.table\] would be faster", capture.error)
        shown = {
            name: found
            for (name, labels), found in samples(get(f"{capture.url()}/metrics").text).items()
            if name.startswith("lowmark_table_") and ("source", "pipe") in labels
        }
        assert shown["lowmark_table_slots"] == 64
        assert shown["lowmark_table_slots_wanted"] >= int(said) > 64
        assert shown["lowmark_table_collisions_ratio"] > 0.1
        capture.process.send_signal(signal.SIGTERM)
        assert capture.wait() == 0, capture.error
