"""`lowmark checkpoint check` on files that are there, cut off or missing; the rest needs a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from highlevel.rosters.roster import Roster
from highlevel.spark.checkpoint.checkpoint import Checkpoint, CheckpointFolder
from highlevel.spark.errors import CheckpointRefused
from lowmark.app.commands.checkpoint import check

CONFIG = """[kafka]
bootstrap = "127.0.0.1:1"
[streams.Main]
[sources.tap]
stream = "Main"
interface = "lo"
[queries.q]
sql = "SELECT count(*) [RANGE 1 minute] FROM Main"
[job]
checkpoint = "checkpoint"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lowmark.toml").write_text(CONFIG)
    return tmp_path / "checkpoint" / "lowmark"


def whole(folder: Path) -> None:
    check(None, folder.parent.parent / "lowmark.toml")


def test_a_checkpoint_that_is_not_there_is_said(folder: Path) -> None:
    with pytest.raises(CheckpointRefused, match="there is no checkpoint of job lowmark in"):
        whole(folder)


def test_damage_is_said_with_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = Checkpoint(
        id="c0ffee", run=1, generation=1, predecessors=(), shuffle_partitions=2, queries={"q": "d"},
        roster=Roster({}, {}), placements={("s", 0): 1}, suppressed={}, told={},
    )  # fmt: skip
    with CheckpointFolder(folder) as files:
        files.write(checkpoint)
    whole(folder)
    assert f"the checkpoint of job lowmark is whole: {folder}" in capsys.readouterr().out
    offsets = folder / "c0ffee" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("v1\n{\n")
    with pytest.raises(CheckpointRefused, match=r"offsets/0, of Spark's checkpoint, is damaged"):
        whole(folder)
    form = json.loads((folder / "lowmark.json").read_text())
    (folder / "lowmark.json").write_text(json.dumps({**form, "version": 99}))
    with pytest.raises(CheckpointRefused, match="its version is 99, this program reads 8"):
        whole(folder)
