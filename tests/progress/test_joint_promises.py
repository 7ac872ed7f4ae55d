"""What several inputs have promised jointly: no row that one of them may still bring is excluded, and nothing that all
of them have said the same way is lost."""

from __future__ import annotations

import json
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from highlevel.progress.promises.joint import JointPromises, joint_promises
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER

COLUMNS = ("a", "b", "c")
VALUES = range(4)
ROWS = [dict(zip((PANE, *COLUMNS), row, strict=True)) for row in product(VALUES, repeat=4)]
"""All that there are."""

BELOW = st.sampled_from((0, 1, 2, 3, 4, FOREVER))
BOUNDS = st.dictionaries(st.sampled_from((PANE, *COLUMNS)), BELOW, min_size=1, max_size=4)
PROMISES = BOUNDS.map(lambda box: Promise(tuple(Bound(column, below) for column, below in box.items())))
INPUTS = st.lists(st.tuples(BELOW, st.lists(PROMISES, max_size=12)), min_size=1, max_size=4)


def excludes(promise: Promise, row: dict[str, int]) -> bool:
    return all(bound.below is not None and row[bound.column] < bound.below for bound in promise.bounds)


def taken(promises: list[Promise]) -> JointPromises:
    joint = JointPromises()
    for promise in promises:
        joint.take(promise)
    return joint


@given(INPUTS)
def test_together_they_exclude_only_what_each_of_them_does(inputs: list[tuple[int, list[Promise]]]) -> None:
    found = joint_promises([(front, taken(promises)) for front, promises in inputs])
    assert all(len(promise.bounds) > 1 and not promise.last for promise in found)  # none that moves a frontier
    for row in ROWS:
        may_come = any(
            row[PANE] >= front and not any(excludes(each, row) for each in promises if len(each.bounds) > 1)
            for front, promises in inputs
        )
        assert not (may_come and any(excludes(promise, row) for promise in found))


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5),
    st.sampled_from((0, 2, FOREVER)),
)
def test_of_promises_alike_the_least_bounds_hold(boxes: list[tuple[int, int]], other: int) -> None:
    """In whatever order their bounds stand; an input that has ended says all of it."""
    lanes = []
    for number, (a, b) in enumerate(boxes):
        bounds = (Bound("a", a), Bound("b", b))
        lanes.append((0, taken([Promise(bounds[:: 1 if number % 2 else -1])])))
    least = Promise((Bound("a", min(a for a, _ in boxes)), Bound("b", min(b for _, b in boxes))))
    assert joint_promises(lanes) == [least]
    with_packets = joint_promises([*lanes, (other, JointPromises())])
    if other == FOREVER:
        assert with_packets == [least]
    elif other == 0:
        assert with_packets == []  # it says no more than that no pane has ended
    else:
        assert with_packets == [Promise((*least.bounds, Bound(PANE, other)))]


@given(st.lists(PROMISES, max_size=40))
def test_what_is_kept_is_bounded_and_lasts(promises: list[Promise]) -> None:
    joint = taken(promises)
    assert len(joint.rows()) <= 8
    again = JointPromises(json.loads(json.dumps(joint.rows())))
    assert [*again.promises()] == [*joint.promises()]
    more = [Promise((Bound("a", 3), Bound("c", 3)))]
    for kept in (joint, again):
        kept.take(more[0])
    assert joint_promises([(0, again), (0, taken(more))]) == joint_promises([(0, joint), (0, taken(more))])


def test_a_promise_of_values_or_of_one_bound_is_none_of_them() -> None:
    values = Promise((Bound("a", 3), Bound("b", values=ValueSet.of((7,)))))
    assert not taken([values, Promise((Bound("a", 3),)), Promise((), last=True)])


def test_what_says_less_takes_no_place() -> None:
    more, less, other = (Promise((Bound("a", a), Bound("b", b))) for a, b in ((5, 5), (5, 4), (3, 9)))
    assert [*taken([more, less]).promises()] == [more]
    assert [*taken([more, other]).promises()] == [other]
