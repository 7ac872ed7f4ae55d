from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from highlevel.rosters.roster import Roster
from highlevel.spark.checkpoint.checkpoint import Checkpoint, CheckpointFolder, Completed, plan_digests
from highlevel.spark.errors import CheckpointRefused, JobFailed, TakenOver
from tests.spark.plans import plan, window

CHECKPOINT = Checkpoint(
    id="c0ffee",
    run=3,
    generation=2,
    predecessors=("old",),
    shuffle_partitions=2,
    queries={"q": "d1", "r": "d2"},
    roster=Roster.of({"Main": ("tap1", "tap2")}),
    placements={("abc", 0): 7, ("abc", 1): 2},
    suppressed={("q", 1): Completed(-5, ("aa", "bb")), ("p", 0): Completed(7)},
    told={("r", 1): 4711},
    ended=frozenset({("abc", 1)}),
    lives={"r": 4},
    begun=5,
    leaving={"old": 3},
)


def test_what_is_written_is_read(tmp_path):
    with CheckpointFolder(tmp_path / "job") as folder:
        assert folder.read() is None
        folder.write(CHECKPOINT)
        assert folder.read() == CHECKPOINT
        folder.write(replace(CHECKPOINT, run=4, predecessors=()))
        assert folder.read() == replace(CHECKPOINT, run=4, predecessors=())


@pytest.mark.parametrize(
    "text", ["", "{}", '{"version": 1}', "[]", '{"version": 5, "id": "x"}', '{"version": 5, "more": 1}']
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
        "import os, sys; from pathlib import Path; from highlevel.spark.checkpoint.checkpoint import CheckpointFolder\n"
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
    commits = Path(folder.spark(CHECKPOINT)) / "commits"
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


def test_a_plans_digest_is_of_what_its_state_depends_on():
    digests = plan_digests([plan(), plan("r", over=window(2, 1)), plan("s", fingerprint="f")])
    assert len(set(digests.values())) == 3
    assert plan_digests([replace(plan(), sql="SELECT  …", notes=("said otherwise",))]) == plan_digests([plan()])


def _sparks_files(place: str) -> Path:
    """What Spark has written when it has committed batch 1, and batch 2 is planned."""
    spark = Path(place)
    files = {f"offsets/{batch}": f'v1\n{{"batchWatermarkMs":0}}\n{{"t":{{"0":{batch}}}}}' for batch in range(3)}
    files |= {
        "metadata": '{"id":"1b1cd7b1"}', "offsets/.1.crc": "?",
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}', "commits/1": 'v1\n{"nextBatchWatermarkMs":0}',
        "commits/.1.crc": "?", "state/0/_metadata/schema": "s", "state/0/0/1.changelog": "a",
        "state/0/0/2.changelog": "a", "state/0/1/1.changelog": "a", "state/0/1/2_ab.changelog": "a",
    }  # fmt: skip
    for name, text in files.items():
        path = spark / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return spark


def _cut(path: Path, left: float) -> None:
    text = path.read_text()
    path.write_text(text[: int(left * len(text)) + 2 * (left > 0)])


@pytest.mark.parametrize("cut", ["metadata", "offsets/1"])
@pytest.mark.parametrize("left", [0, 0.5])
def test_a_file_of_sparks_that_is_cut_is_named(tmp_path, cut, left):
    folder = CheckpointFolder(tmp_path)
    folder.check(CHECKPOINT)  # Spark has not begun
    spark = _sparks_files(folder.spark(CHECKPOINT))
    (spark / "offsets" / "2").unlink()
    folder.check(CHECKPOINT)
    assert folder.batches(CHECKPOINT) == 2
    _cut(spark / cut, left)
    with pytest.raises(CheckpointRefused, match=rf"/{cut}, of Spark's checkpoint, is damaged.*--new-generation"):
        folder.check(CHECKPOINT)


def _contents(spark: Path) -> dict[str, str]:
    return {str(path.relative_to(spark)): path.read_text() for path in spark.rglob("*") if path.is_file()}


@pytest.mark.parametrize("lost", ["state/0/0/2.changelog", "state/0/1/2_ab.changelog", "commits/1"])
@pytest.mark.parametrize("left", [None, 0, 0.5])
def test_a_batch_is_run_again_if_a_crash_has_left_only_half_of_its_end(tmp_path, lost, left):
    """Spark writes the state and then the commit, and makes neither durable."""
    folder = CheckpointFolder(tmp_path)
    spark = _sparks_files(folder.spark(CHECKPOINT))
    (spark / "offsets" / "2").unlink()
    if left is None:
        (spark / lost).unlink()
        (spark / "commits" / ".1.crc").unlink()
    elif left and "state" in lost:
        pytest.skip("how much of a file of the state there must be, only Spark knows")
    else:
        _cut(spark / lost, left)
    before = _contents(spark)
    folder.check(CHECKPOINT)
    assert folder.batches(CHECKPOINT) == 1
    assert _contents(spark) == {name: of for name, of in before.items() if name not in ("commits/1", "commits/.1.crc")}
    folder.check(CHECKPOINT)
    assert folder.batches(CHECKPOINT) == 1


def test_a_commit_stays_if_its_batch_cannot_be_run_again(tmp_path):
    folder = CheckpointFolder(tmp_path)
    spark = _sparks_files(folder.spark(CHECKPOINT))
    for lost in ("state/0/0/2.changelog", "offsets/1", "offsets/2"):
        (spark / lost).unlink()
    folder.check(CHECKPOINT)
    assert folder.batches(CHECKPOINT) == 2


def test_a_checkpoint_may_be_moved(tmp_path):
    """Spark itself finds the schema of its state only at the path at which it has written it."""
    log = Path("c0ffee/state/0/_metadata/v2")
    (tmp_path / log).mkdir(parents=True)
    schema = "/state/0/_stateSchema/default/0_943c"
    text = 'v2\n{{"stateStoreInfo":[{{"numPartitions":2,"stateSchemaFilePaths":["{}"]}}],"other":"/was/c0ffee"}}'
    (tmp_path / log / "0").write_text(text.format(f"file:/was/here/c0ffee{schema}"))
    (tmp_path / log / ".0.crc").write_bytes(b"of the former text")
    with CheckpointFolder(tmp_path) as folder:
        folder.check(CHECKPOINT)
        now = text.format(f"{tmp_path}/c0ffee{schema}")
        assert (tmp_path / log / "0").read_text() == now
        assert {entry.name for entry in (tmp_path / log).iterdir()} == {"0"}
        (tmp_path / log / ".0.crc").write_bytes(b"of this text")
        folder.check(CHECKPOINT)
        assert (tmp_path / log / "0").read_text() == now
        assert (tmp_path / log / ".0.crc").exists()


@pytest.mark.parametrize("left", [0, 0.5])
def test_a_plan_that_a_crash_has_cut_is_no_plan(tmp_path, left):
    folder = CheckpointFolder(tmp_path)
    spark = _sparks_files(folder.spark(CHECKPOINT))
    assert folder.planned(CHECKPOINT) == 2
    _cut(spark / "offsets" / "2", left)
    assert folder.planned(CHECKPOINT) == 1
    folder.check(CHECKPOINT)
    assert not (spark / "offsets" / "2").exists()
    assert folder.batches(CHECKPOINT) == 2


def test_what_a_batch_is_run_again_from_is_made_durable(tmp_path, monkeypatch):
    """Before its results may be in Kafka: its offsets, the commit before it, and the state that it begins with; of the
    first one, where each reader begins."""
    folder = CheckpointFolder(tmp_path)
    spark = Path(folder.spark(CHECKPOINT))
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
    begins = [spark / "sources" / str(reader) / "0" for reader in range(2)]
    for file in begins:
        file.parent.mkdir(parents=True)
        file.write_text("")
    folder.make_durable(CHECKPOINT, 7)
    assert not {str(file) for file in begins} & set(synced)
    folder.make_durable(CHECKPOINT, 0)
    assert {str(file) for file in begins} <= set(synced)
