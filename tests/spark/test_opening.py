from __future__ import annotations

from dataclasses import replace

import pytest

from highlevel.spark.checkpoint import Completed
from highlevel.spark.errors import CheckpointRefused, RowsWouldRepeat, TopicsDeleted
from highlevel.spark.opening import StartState, begun_anew, carried_on, same_topics
from highlevel.spark.replay import Replay
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
    token=None,
    where="/cp",
)


def nothing():
    return NOTHING


def later(checkpoint, batches, **changes):
    token = Token("job", checkpoint.id, checkpoint.run, max(0, batches - 1)) if batches else None
    return replace(FRESH, stored=checkpoint, batches=batches, planned=batches - 1, token=token, **changes)


def test_the_first_run():
    checkpoint = carried_on(FRESH, nothing)
    assert (checkpoint.run, checkpoint.generation, checkpoint.predecessor) == (1, 1, None)
    assert set(checkpoint.placements) == {("abc123", bucket) for bucket in range(4)}
    assert len(set(checkpoint.placements.values())) == 4
    assert carried_on(FRESH, nothing).id != checkpoint.id


def test_the_next_run_keeps_all_but_its_number():
    checkpoint = carried_on(FRESH, nothing)
    for batches in (0, 1, 7):
        assert carried_on(later(checkpoint, batches), nothing) == replace(checkpoint, run=2)


def test_a_run_that_wrote_its_batch_and_could_not_commit_it_is_carried_on():
    checkpoint = carried_on(FRESH, nothing)
    standing = replace(later(checkpoint, 0), token=Token("job", checkpoint.id, 1, 0), planned=0)
    assert carried_on(standing, nothing).run == 2


@pytest.mark.parametrize(("batches", "planned", "written"), [(3, 2, 3), (3, 3, 7), (0, -1, 0)])
def test_an_older_copy_of_the_checkpoint_is_refused(batches, planned, written):
    checkpoint = carried_on(FRESH, nothing)
    token = Token("job", checkpoint.id, 1, written)
    standing = replace(later(checkpoint, batches), token=token, planned=planned)
    with pytest.raises(CheckpointRefused, match=rf"no batch after {planned}, .*up to batch {written}: it is an older"):
        carried_on(standing, nothing)
    carried_on(replace(standing, planned=written), nothing)


def test_a_lost_checkpoint_is_refused():
    with pytest.raises(CheckpointRefused, match=r"/cp is new, but results .* from checkpoint other \(batch 5\)"):
        carried_on(replace(FRESH, token=Token("job", "other", 1, 5)), nothing)
    with pytest.raises(CheckpointRefused, match=r"there are results already \(generation 3\).*--new-generation"):
        carried_on(FRESH, lambda: History(3, {}))


def test_another_checkpoints_token_is_refused():
    standing = replace(later(carried_on(FRESH, nothing), 3), token=Token("job", "other", 1, 5))
    with pytest.raises(CheckpointRefused, match="last results were written from checkpoint other"):
        carried_on(standing, nothing)


def test_no_token_after_the_first_batch_is_refused():
    standing = replace(later(carried_on(FRESH, nothing), 3), token=None)
    with pytest.raises(CheckpointRefused, match="has 3 batches, but Kafka does not say"):
        carried_on(standing, nothing)


def test_other_queries_and_shuffles_are_refused_with_what_is_different():
    standing = later(carried_on(FRESH, nothing), 3)
    with pytest.raises(CheckpointRefused, match="query q has another plan now; shuffle_partitions was 2 and is 3 now"):
        carried_on(replace(standing, queries={"q": "e"}, shuffle_partitions=3), nothing)


def test_a_new_generation_leaves_out_what_is_complete():
    former = carried_on(FRESH, nothing)
    anew = begun_anew(later(former, 3), History(1, {("q", 0): Completed(50, ("a",)), ("q", 2): Completed(40)}))
    assert (anew.generation, anew.run, anew.predecessor) == (2, 1, former.id)
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
    standing = replace(FRESH, stored=anew, token=Token("job", former.id, 1, 2))
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

READ = {("abc123", 0): {"free": Told("law", 70)}, ("abc123", 1): {"free": Told("law", 9), "q": Told("x", 3)}}
TOLD = History(1, {("q", 0): Completed(50), ("free", 0): Completed(40)}, frozenset({("free", 0)}))


def free(replay=FREE, told=READ):
    return replace(FRESH, replays={"free": replay}, told=told)


def test_of_a_query_without_windows_a_new_generation_leaves_out_what_had_been_read():
    """Also where the checkpoint is lost."""
    anew = begun_anew(free(), TOLD)
    assert anew.told == {("free", 0): 70, ("free", 1): 9}
    assert anew.suppressed == {("q", 0): Completed(50)}


def test_a_query_of_which_nothing_has_been_told_is_told_whole():
    assert begun_anew(free(told={}), History(1, {("q", 0): Completed(50)})).told == {}
    assert begun_anew(free(replace(FREE, law=None)), History(1, {})).told == {}
    # Not as far as another one of the stage had been read.
    assert begun_anew(free(told={("abc123", 0): {"q": Told("law", 70)}}), History(1, {})).told == {}


@pytest.mark.parametrize(
    ("standing", "history", "why"),
    [
        (free(replace(FREE, law=None)), TOLD, "change their bucket"),
        (free(told={}), TOLD, "Kafka does not say"),
        (free(told={("abc123", 1): {"free": Told("law", 9)}}), TOLD, "Kafka does not say"),
        (free(replace(FREE, law="other")), TOLD, "its text, its sources"),
        (free(), replace(TOLD, shortened=frozenset({("abc123", 0)})), "deleted the beginning"),
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
