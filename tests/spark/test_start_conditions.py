from __future__ import annotations

from dataclasses import replace

import pytest

from highlevel.spark.checkpoint.checkpoint import Completed
from highlevel.spark.checkpoint.replay import Replay
from highlevel.spark.checkpoint.start_conditions import StartState, begun_anew, carried_on, same_topics
from highlevel.spark.errors import CheckpointRefused, RowsWouldRepeat, TopicsDeleted
from highlevel.spark.sink.results_history import History
from lowmark.wire.records.sink_token import Token, Told
from tests.spark.plans import plan

NOTHING = History(0, {})
FRESH = StartState(
    queries={"q": "d"},
    stages=[plan().stage],
    shuffle_partitions=2,
    stored=None,
    batches=0,
    planned=-1,
    where="/cp",
)


def nothing():
    return NOTHING


def later(checkpoint, batches, **changes):
    tokens = written(checkpoint.id, batches - 1, checkpoint.run) if batches else {}
    return replace(FRESH, stored=checkpoint, batches=batches, planned=batches - 1, tokens=tokens, **changes)


def token(checkpoint, batch, run=1, told=None):
    return Token(job="job", checkpoint=checkpoint, run=run, batch=batch, part=0, last=True, digest="d", told=told or {})


def written(checkpoint, batch, run=1):
    """Of the last bucket; the others have written less."""
    return {("abc123", bucket): token(checkpoint, batch if bucket == 3 else -1, run) for bucket in range(4)}


def test_the_first_run():
    checkpoint = carried_on(FRESH, nothing)
    assert (checkpoint.run, checkpoint.generation, checkpoint.predecessors) == (1, 1, ())
    assert set(checkpoint.placements) == {("abc123", bucket) for bucket in range(4)}
    assert len(set(checkpoint.placements.values())) == 4
    assert carried_on(FRESH, nothing).id != checkpoint.id


def test_the_next_run_keeps_all_but_its_number():
    checkpoint = carried_on(FRESH, nothing)
    for batches in (0, 1, 7):
        assert carried_on(later(checkpoint, batches), nothing) == replace(checkpoint, run=2)


def test_a_run_that_wrote_its_batch_and_could_not_commit_it_is_carried_on():
    checkpoint = carried_on(FRESH, nothing)
    standing = replace(later(checkpoint, 0), tokens=written(checkpoint.id, 0), planned=0)
    assert carried_on(standing, nothing).run == 2


@pytest.mark.parametrize(("batches", "planned", "upto"), [(3, 2, 3), (3, 3, 7), (0, -1, 0)])
def test_an_older_copy_of_the_checkpoint_is_refused(batches, planned, upto):
    checkpoint = carried_on(FRESH, nothing)
    standing = replace(later(checkpoint, batches), tokens=written(checkpoint.id, upto), planned=planned)
    with pytest.raises(CheckpointRefused, match=rf"no batch after {planned}, .*up to batch {upto}: it is an older"):
        carried_on(standing, nothing)
    carried_on(replace(standing, planned=upto), nothing)


def test_a_lost_checkpoint_is_refused():
    with pytest.raises(CheckpointRefused, match=r"/cp is new, but results .* from checkpoint other \(batch 5\)"):
        carried_on(replace(FRESH, tokens=written("other", 5)), nothing)
    with pytest.raises(CheckpointRefused, match=r"there are results already \(generation 3\).*--new-generation"):
        carried_on(FRESH, lambda: History(3, {}))


def test_another_checkpoints_token_is_refused():
    former = later(carried_on(FRESH, nothing), 3)
    standing = replace(former, tokens=former.tokens | {("abc123", 2): token("other", 5)})
    with pytest.raises(CheckpointRefused, match="last results were written from checkpoint other"):
        carried_on(standing, nothing)


def test_no_token_after_the_first_batch_is_refused():
    former = later(carried_on(FRESH, nothing), 3)
    for left in ({}, {key: each for key, each in former.tokens.items() if key[1] != 1}):
        with pytest.raises(CheckpointRefused, match="has 3 batches, but Kafka does not say"):
            carried_on(replace(former, tokens=left), nothing)


def test_results_of_another_job_are_refused():
    standing = replace(FRESH, others={"q": "rival"})
    with pytest.raises(CheckpointRefused, match=r"one job: job rival writes those of q.*--new-generation"):
        carried_on(standing, nothing)
    assert begun_anew(standing, NOTHING).generation == 1


def test_other_shuffles_are_refused_with_what_is_different():
    standing = later(carried_on(FRESH, nothing), 3)
    with pytest.raises(CheckpointRefused, match="shuffle_partitions was 2 and is 3 now"):
        carried_on(replace(standing, queries={"q": "e"}, shuffle_partitions=3), nothing)


def test_a_changed_query_is_carried_on_in_a_generation_of_its_own_where_its_results_stand():
    standing = replace(later(carried_on(FRESH, nothing), 3), queries={"q": "e", "r": "d"})
    found = History(1, {("q", 1): Completed(50)})
    checkpoint = carried_on(standing, lambda: found)
    assert (checkpoint.id, checkpoint.run, checkpoint.generation) == (standing.stored.id, 2, 1)
    assert (checkpoint.lives, checkpoint.suppressed) == ({"q": 2, "r": 2}, {("q", 1): Completed(50)})
    assert checkpoint.placements == standing.stored.placements


def test_a_batch_that_is_written_and_not_committed_is_run_by_the_queries_of_before():
    stored = carried_on(FRESH, nothing)
    standing = replace(later(stored, 3), tokens=written(stored.id, 3), planned=3)
    with pytest.raises(CheckpointRefused, match=r"^query r is new: .* batch 3, of which results may .* as it was"):
        carried_on(replace(standing, queries={"q": "d", "r": "e"}), nothing)
    assert carried_on(standing, nothing).run == 2
    # Also if its stage leaves, or if all that has come of it is that a bucket has ended.
    left = replace(standing, queries={"r": "e"}, stages=[plan("r", "other").stage])
    ended = replace(later(replace(stored, noted=3), 3), queries={"q": "d", "r": "e"})
    for changed in (left, ended):
        with pytest.raises(CheckpointRefused, match="has not committed batch 3"):
            carried_on(changed, nothing)


def test_a_stage_that_is_new_or_comes_back_has_no_token_of_this_checkpoint():
    standing = later(carried_on(FRESH, nothing), 3)
    other = replace(standing, queries={"q": "d", "r": "e"}, stages=[plan().stage, plan("r", "other", 2).stage])
    assert carried_on(other, nothing).run == 2
    former = {("other", 0): token("a checkpoint of before", 9)}
    assert carried_on(replace(other, tokens={**other.tokens, **former}), nothing).run == 2


def test_queries_are_released_one_by_one():
    queries = {"q": "d", "r": "e", "s": "f"}
    first = carried_on(replace(FRESH, queries=queries), nothing)
    stored = replace(first, quarantined=dict.fromkeys(queries, "why"))
    standing = replace(later(stored, 3), queries=queries)
    assert carried_on(standing, nothing).quarantined == stored.quarantined
    one = carried_on(standing, nothing, ["q"])
    assert (set(one.quarantined), one.lives) == ({"r", "s"}, {"q": 2})


def test_rows_that_a_query_that_comes_back_may_write_again_are_refused_once_its_stage_is_read_anew():
    standing = later(carried_on(replace(FRESH, queries={}, stages=[]), nothing), 3)
    back = replace(standing, queries={"free": "d"}, stages=[plan().stage], replays={"free": FREE})
    with pytest.raises(RowsWouldRepeat, match=r"query free is new: .* --repeat-rows"):
        carried_on(back, lambda: TOLD)
    assert carried_on(back, lambda: TOLD, repeat_rows=True).told == {}
    assert carried_on(replace(back, tokens=told_by(READ)), lambda: TOLD).told == {("free", 0): 70, ("free", 1): 9}
    changed = told_by({0: {"free": Told("former law", 70)}})
    assert carried_on(replace(back, tokens=changed), lambda: TOLD).lives == {"free": 2}


def test_a_new_generation_leaves_out_what_is_complete():
    former = carried_on(FRESH, nothing)
    anew = begun_anew(later(former, 3), History(1, {("q", 0): Completed(50, ("a",)), ("q", 2): Completed(40)}))
    assert (anew.generation, anew.run, anew.predecessors) == (2, 1, (former.id,))
    assert anew.suppressed == {("q", 0): Completed(50, ("a",)), ("q", 2): Completed(40)}
    assert anew.id != former.id
    third = begun_anew(later(anew, 1), History(2, {("q", 0): Completed(70, ("b", "c"))}))
    assert third.generation == 3
    # Also where the second had not come so far.
    assert third.suppressed == {("q", 0): Completed(70, ("b", "c")), ("q", 2): Completed(40)}


def test_a_new_generation_after_everything_is_lost_counts_on_from_the_results():
    assert begun_anew(FRESH, History(4, {})).generation == 5


def test_a_new_generation_that_was_killed_before_its_first_batch_is_carried_on():
    former = carried_on(FRESH, nothing)
    anew = begun_anew(later(former, 3), NOTHING)
    standing = replace(FRESH, stored=anew, tokens=written(former.id, 2) | {("abc123", 0): token(anew.id, -1)})
    assert carried_on(standing, nothing) == replace(anew, run=2)
    with pytest.raises(CheckpointRefused):  # after its first batch, the token would be its own
        carried_on(replace(standing, batches=1), nothing)


def test_topics_that_are_missing_or_others_of_the_same_name_are_refused():
    stored = replace(carried_on(FRESH, nothing), topics={"a": "1", "b": "2"})
    same_topics(stored, {"a": "1", "b": "2", "c": "3"}, ["a", "b", "c"])
    same_topics(replace(stored, topics={}), {"a": "1"}, ["a"])  # of a version that did not note them
    for ids in ({"a": "1"}, {"a": "1", "b": "3"}):
        with pytest.raises(TopicsDeleted, match=r"^b: this topic of results was deleted.*--new-generation"):
            same_topics(stored, ids, ["a", "b"])


FREE = Replay(plan().stage, "law")
"""Of a query without windows."""

READ = {0: {"free": Told("law", 70)}, 1: {"free": Told("law", 9), "q": Told("x", 3)}}
TOLD = History(1, {("q", 0): Completed(50), ("free", 0): Completed(40)}, frozenset({("free", 0)}))


def told_by(told):
    return {("abc123", bucket): token("cp", 3, told=of) for bucket, of in told.items()}


def free(replay=FREE, told=READ):
    return replace(FRESH, replays={"free": replay}, tokens=told_by(told))


def test_of_a_query_without_windows_a_new_generation_leaves_out_what_had_been_read():
    """Also where the checkpoint is lost."""
    anew = begun_anew(free(), TOLD)
    assert anew.told == {("free", 0): 70, ("free", 1): 9}
    assert anew.suppressed == {("q", 0): Completed(50)}


def test_a_query_of_which_nothing_has_been_told_is_told_whole():
    assert begun_anew(free(told={}), History(1, {("q", 0): Completed(50)})).told == {}
    assert begun_anew(free(replace(FREE, law=None)), History(1, {})).told == {}
    # Not as far as another one of the stage had been read.
    assert begun_anew(free(told={0: {"q": Told("law", 70)}}), History(1, {})).told == {}


@pytest.mark.parametrize(
    ("standing", "history", "why"),
    [
        (free(replace(FREE, law=None)), TOLD, "change their bucket"),
        (free(told={}), TOLD, "Kafka does not say"),
        (free(told={1: {"free": Told("law", 9)}}), TOLD, "Kafka does not say"),
        (free(replace(FREE, law="other")), TOLD, "its text, its sources"),
        (free(), replace(TOLD, shortened={("abc123", 0): 7}), "deleted the beginning"),
    ],
)
def test_what_cannot_be_told_apart_is_refused_with_the_query_and_why(standing, history, why):
    with pytest.raises(RowsWouldRepeat, match=rf"result topics of free, .*\(free: .*{why}.*--repeat-rows") as refused:
        begun_anew(standing, history)
    assert refused.value.exit_code == 2
    anew = begun_anew(standing, history, repeat_rows=True)
    # Its completions too are those of the new generation: each counts the rows that this one has written before it.
    assert (anew.told, anew.suppressed) == ({}, {("q", 0): Completed(50)})


def test_what_can_be_told_apart_is_not_repeated_with_the_rest():
    standing = replace(free(), replays={"free": FREE, "far": replace(FREE, law=None)})
    history = replace(TOLD, told=frozenset({("free", 0), ("far", 3)}))
    assert begun_anew(standing, history, repeat_rows=True).told == {("free", 0): 70, ("free", 1): 9}
    with pytest.raises(RowsWouldRepeat, match=r"topics of far, "):
        begun_anew(standing, history)


def test_a_first_batch_whose_commit_is_lost_needs_its_tokens() -> None:
    """They are written before it is planned: without them nobody knows whether its results are there."""
    checkpoint = carried_on(FRESH, nothing)
    planned = replace(later(checkpoint, 0), planned=0)
    with pytest.raises(CheckpointRefused, match="has 1 batches, but Kafka does not say"):
        carried_on(planned, nothing)
    assert carried_on(replace(planned, tokens=written(checkpoint.id, -1)), nothing).run == 2
