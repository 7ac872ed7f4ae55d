"""Random histories of a job's queries: what each start makes of the checkpoint."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from highlevel.rosters.roster import Roster
from highlevel.spark.checkpoint.checkpoint import Checkpoint
from highlevel.spark.checkpoint.placement import task_of
from highlevel.spark.checkpoint.query_changes import applied, changes
from highlevel.spark.checkpoint.start_conditions import begins
from highlevel.spark.sink.results_history import History
from tests.spark.plans import plan

TASKS = 3
NAMES = "abcd"
TEXTS = ("one", "two")

starts = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS)),
        st.frozensets(st.sampled_from(NAMES)),  # quarantined before
        st.frozensets(st.sampled_from(NAMES)),  # released
        st.booleans(),  # whether the buckets of stages that have left have dropped their state before
    ),
    max_size=6,
)


def stage_of(name, text):
    """Both texts of a and b read one stage; c and d have a stage for each text."""
    return plan(name, "ab" if name in "ab" else name + text, 2).stage


@given(starts)
def test_each_start_keeps_what_goes_on_and_gives_all_else_a_life_of_its_own(starts):
    checkpoint = Checkpoint(
        id="c", run=1, generation=1, predecessors=(), shuffle_partitions=TASKS, queries={}, roster=Roster({}, {}),
        placements={}, suppressed={}, told={},
    )  # fmt: skip
    lived = set()  # (query, generation) ever given out
    stateful = set()  # buckets with state
    for queries, quarantined, released, cleared in starts:
        checkpoint = replace(checkpoint, quarantined=dict.fromkeys(quarantined & checkpoint.queries.keys(), "why"))
        if cleared:
            gone = frozenset(key for key in checkpoint.placements if key[0] in checkpoint.leaving)
            checkpoint = replace(checkpoint, ended=checkpoint.ended | gone)
            stateful -= gone
        before, now = checkpoint, changes(checkpoint, queries, released)
        stages = {stage.fingerprint: stage for stage in (stage_of(*each) for each in queries.items())}
        checkpoint = applied(before, queries, stages.values(), now, History(0, {}), {})
        staying = {name for name in queries if before.queries.get(name) == queries[name]} - (released & quarantined)
        assert now.joining == queries.keys() - staying
        for name in staying:
            assert checkpoint.lives.get(name) == before.lives.get(name)
            assert checkpoint.quarantined.get(name) == before.quarantined.get(name)
        for name in now.joining:
            assert checkpoint.lives[name] > before.newest
            assert (name, checkpoint.lives[name]) not in lived
            lived.add((name, checkpoint.lives[name]))
        read = {(name, bucket) for name, stage in stages.items() for bucket in range(stage.buckets)}
        assert read <= checkpoint.placements.keys()
        assert begins(before, checkpoint) == read - stateful
        stateful |= read
        assert len(set(checkpoint.placements.values())) == len(checkpoint.placements)
        for key in checkpoint.placements.keys() & before.placements.keys():
            assert checkpoint.placements[key] == before.placements[key]
        left = {stage for stage, _ in checkpoint.placements} - stages.keys()
        assert left == checkpoint.leaving.keys()
        if cleared:
            assert not left & before.leaving.keys(), "what is cleared is forgotten with the next change"
        assert all(stage in left for stage, _ in checkpoint.ended)
        for stage, generation in checkpoint.leaving.items():
            assert generation < max(checkpoint.lives.values(), default=generation + 1) or not now.joining
            assert stage not in stages


@given(st.sets(st.integers(0, 40), max_size=8), st.integers(0, 12), st.integers(1, 5))
def test_new_buckets_go_to_the_tasks_that_have_least(taken, keys, tasks):
    from highlevel.spark.checkpoint.placement import placed

    load = Counter(dict.fromkeys(range(tasks), 0))
    load.update(task_of(number, tasks) for number in taken)
    for number in placed(taken, keys, tasks):
        assert number not in taken
        assert load[task_of(number, tasks)] == min(load.values())
        load[task_of(number, tasks)] += 1
