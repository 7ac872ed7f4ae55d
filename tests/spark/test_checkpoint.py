from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from highlevel.rosters.roster import Roster
from highlevel.spark.checkpoint import Checkpoint, CheckpointFolder, Completed, differences, plan_digests
from highlevel.spark.errors import CheckpointRefused, JobFailed, TakenOver
from tests.spark.plans import plan, window

CHECKPOINT = Checkpoint(
    id="c0ffee",
    run=3,
    generation=2,
    predecessor="old",
    shuffle_partitions=2,
    queries={"q": "d1", "r": "d2"},
    roster=Roster.of({"Main": ("tap1", "tap2")}),
    placements={("abc", 0): 7, ("abc", 1): 2},
    suppressed={("q", 1): Completed(-5, ("aa", "bb")), ("p", 0): Completed(7)},
    told={("r", 1): 4711},
    ended=frozenset({("abc", 1)}),
)


def test_what_is_written_is_read(tmp_path):
    with CheckpointFolder(tmp_path / "job") as folder:
        assert folder.read() is None
        folder.write(CHECKPOINT)
        assert folder.read() == CHECKPOINT
        folder.write(replace(CHECKPOINT, run=4, predecessor=None))
        assert folder.read() == replace(CHECKPOINT, run=4, predecessor=None)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"version": 1}', "[]", '{"version": 4, "id": "x"}', '{"version": 4, "more": 1}']
)
def test_a_damaged_file_is_refused_with_a_way_out(tmp_path, text):
    with CheckpointFolder(tmp_path) as folder:
        (tmp_path / "lowmark.json").write_text(text)
        with pytest.raises(CheckpointRefused, match=r"lowmark\.json is damaged.*--new-generation"):
            folder.read()


def test_a_missing_field_and_a_field_too_many_are_refused(tmp_path):
    with CheckpointFolder(tmp_path) as folder:
        folder.write(CHECKPOINT)
        form = json.loads((tmp_path / "lowmark.json").read_text())
        for changed in ({**form, "more": 1}, {name: value for name, value in form.items() if name != "run"}):
            (tmp_path / "lowmark.json").write_text(json.dumps(changed))
            with pytest.raises(CheckpointRefused):
                folder.read()


def test_one_process_at_a_time(tmp_path):
    with CheckpointFolder(tmp_path), pytest.raises(TakenOver, match=f"in use by process {os.getpid()}"):
        CheckpointFolder(tmp_path).__enter__()
    with CheckpointFolder(tmp_path):
        pass


def test_a_killed_process_leaves_no_lock(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from highlevel.spark.checkpoint import CheckpointFolder\n"
        "with CheckpointFolder(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(TakenOver, match=f"process {holder.pid}"):
        CheckpointFolder(tmp_path).__enter__()
    holder.kill()
    holder.wait()
    with CheckpointFolder(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JobFailed, match="cannot be written"):
        CheckpointFolder(tmp_path / "file" / "job").__enter__()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_checkpoint_that_may_not_be_read_may_be_read_later(tmp_path):
    with CheckpointFolder(tmp_path) as folder:
        folder.write(CHECKPOINT)
        for file in tmp_path.iterdir():
            file.chmod(0)
        with pytest.raises(JobFailed, match="cannot be read: Permission denied"):
            folder.read()


def test_committed_batches_are_counted(tmp_path):
    folder = CheckpointFolder(tmp_path)
    assert folder.batches(CHECKPOINT) == 0
    commits = folder.spark(CHECKPOINT) / "commits"
    commits.mkdir(parents=True)
    for name in ("0", "1", "10", ".11.crc", "11.tmp"):
        (commits / name).write_text("")
    assert folder.batches(CHECKPOINT) == 11


def test_only_former_generations_are_forgotten(tmp_path):
    with CheckpointFolder(tmp_path) as folder:
        for name in ("former", CHECKPOINT.id):
            (tmp_path / name).mkdir()
            (tmp_path / name / "metadata").write_text("")
        (tmp_path / "somebody's").mkdir()
        folder.forget_others(CHECKPOINT)
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [CHECKPOINT.id, "somebody's"]


def test_differences_are_told():
    assert differences(CHECKPOINT, CHECKPOINT.queries, 2) == []
    assert differences(CHECKPOINT, {"q": "d3", "s": "d4"}, 4) == [
        "query q has another plan now",
        "query r is missing now",
        "query s is new",
        "shuffle_partitions was 2 and is 4 now",
    ]


def test_a_plans_digest_is_of_what_its_state_depends_on():
    digests = plan_digests([plan(), plan("r", over=window(2, 1)), plan("s", fingerprint="f")])
    assert len(set(digests.values())) == 3
    assert plan_digests([replace(plan(), sql="SELECT  …", notes=("said otherwise",))]) == plan_digests([plan()])


@pytest.mark.parametrize("cut", ["metadata", "offsets/1", "commits/1"])
@pytest.mark.parametrize("left", [0, 0.5])
def test_a_file_of_sparks_that_is_cut_is_named(tmp_path, cut, left):
    folder = CheckpointFolder(tmp_path)
    folder.check(CHECKPOINT)  # Spark has not begun
    files = {
        "metadata": '{"id":"1b1cd7b1"}', "offsets/0": "", "offsets/1": 'v1\n{"batchWatermarkMs":0}\n{"t":{"0":5}}',
        "offsets/.1.crc": "?", "commits/1": 'v1\n{"nextBatchWatermarkMs":0}',
    }  # fmt: skip
    for name, text in files.items():
        path = folder.spark(CHECKPOINT) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    folder.check(CHECKPOINT)
    (folder.spark(CHECKPOINT) / cut).write_text(files[cut][: int(left * len(files[cut])) + 2 * (left > 0)])
    with pytest.raises(CheckpointRefused, match=rf"/{cut}, of Spark's checkpoint, is damaged.*--new-generation"):
        folder.check(CHECKPOINT)


def test_what_a_batch_is_run_again_from_is_made_durable(tmp_path, monkeypatch):
    """Before its results may be in Kafka: its offsets, the commit before it, and the state that it begins with."""
    folder = CheckpointFolder(tmp_path)
    spark = folder.spark(CHECKPOINT)
    shard = spark / "state" / "0" / "1"
    shard.mkdir(parents=True)
    for log in ("offsets", "commits"):
        (spark / log).mkdir()
        for number in range(8):
            (spark / log / str(number)).write_text("")
    for name in ("6.changelog", "7.changelog", "7_ab.changelog", "17.changelog", "3.zip"):
        (shard / name).write_text("")
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda opened: (synced.append(os.readlink(f"/proc/self/fd/{opened}")), fsync(opened))
    )
    folder.make_durable(CHECKPOINT, 7)
    files = {spark / "offsets" / "7", spark / "commits" / "6"}
    files |= {shard / name for name in ("7.changelog", "7_ab.changelog", "3.zip")}
    folders = {spark, shard, spark / "offsets", spark / "commits"}
    assert {path for path in map(type(tmp_path), synced) if path.is_file()} == files
    assert folders <= set(map(type(tmp_path), synced))
    synced.clear()
    folder.make_durable(CHECKPOINT, 7)
    assert str(shard / "3.zip") not in synced
    (shard / "3.zip").unlink()
    folder.make_durable(CHECKPOINT, 7)
    (shard / "3.zip").write_text("again")
    folder.make_durable(CHECKPOINT, 7)
    assert str(shard / "3.zip") in synced, "it is not the file that was made durable"
