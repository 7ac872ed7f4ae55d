"""Tables that the machine has no room for are refused before they are made."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import pytest

from lowlevel.config import FlushOrder, LowLevelConfig, LowLevelConfigError
from lowlevel.node_memory import NodeMemory, table_bytes
from lowmark.app.capture import table_memory
from lowmark.app.capture.table_memory import check_tables, usable_bytes
from lowmark.query.compile import compile_query
from tests.acceptance.command import lowmark
from tests.naive.frames import write_pcap
from tests.naive.readers import Frame

NODE = compile_query(
    "SELECT srcIP, count(*) [RANGE 1 s] FROM Main GROUP BY srcIP", name="q", streams={"Main": 1}, buckets=1
).stage.nodes[0]


@pytest.mark.parametrize("order", FlushOrder)
def test_what_a_table_takes_is_what_is_allocated(order: FlushOrder) -> None:
    config = LowLevelConfig(slots=1 << 14, order=order, output_rows=64)
    memory = NodeMemory(NODE.reduction, config, 0, 0)
    allocated = sum(array.nbytes for array in memory.arguments)
    assert table_bytes(NODE.reduction, config) <= allocated < table_bytes(NODE.reduction, config) + 50_000


def test_all_tables_together_have_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    config = LowLevelConfig(slots=1 << 14)
    one = table_bytes(NODE.reduction, config)
    monkeypatch.setattr(table_memory, "usable_bytes", lambda: 2 * one)
    check_tables([NODE, NODE], config, "--table 16384")
    with pytest.raises(LowLevelConfigError, match="--table 16384: 3 tables of it, one for each node, take"):
        check_tables([NODE] * 3, config, "--table 16384")
    check_tables([NODE] * 3, replace(config, slots=1), "--table 1")


def test_a_limit_on_the_process_counts() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    unlimited = usable_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (unlimited - 1, before[1]))
    try:
        assert usable_bytes() == unlimited - 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("size", ['memory = "900G"', "slots = 2147483648"])
def test_of_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    """Nothing listens at the broker's address: the size is refused before it is called."""
    write_pcap(tmp_path / "a.pcap", [Frame(1, 1, bytes(60), 60)])
    (tmp_path / "lowmark.toml").write_text(
        f'[kafka]\nbootstrap = "127.0.0.1:1"\n[capture.table]\n{size}\n[streams.Main]\n'
        '[sources.tap]\nstream = "Main"\nfile = "a.pcap"\n'
        '[queries.all]\nsql = "SELECT srcIP, count(*) [RANGE 1 s] FROM Main GROUP BY srcIP"\n'
    )
    monkeypatch.setattr("lowmark.app.config.checks._kafka", lambda *_: iter(()))
    said = f"capture.table: {size}: a table of it takes 1"
    checked = lowmark("check", "-c", str(tmp_path / "lowmark.toml"))
    assert checked.code == 2
    assert said in checked.out
    captured = lowmark("capture", "-c", str(tmp_path / "lowmark.toml"))
    assert captured.code == 2
    assert said in captured.error
