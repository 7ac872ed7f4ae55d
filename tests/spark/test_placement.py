from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from highlevel.spark.checkpoint.placement import placements, task_of

SPARK_SAYS = {0: 933211791, 1: -559580957, 42: 29417773, -1: -1604776387, 2147483647: 133916647, 123456789: -598405280}
"""SELECT hash(n) in Spark 4.2."""


def test_the_hash_is_sparks():
    tasks = 1_000_003
    assert {number: task_of(number, tasks) for number in SPARK_SAYS} == {
        number: hashed % tasks for number, hashed in SPARK_SAYS.items()
    }


@given(st.integers(1, 200), st.integers(1, 16))
def test_keys_are_distinct_and_tasks_come_in_turn(keys, tasks):
    numbers = placements(keys, tasks)
    assert len(set(numbers)) == keys
    assert [task_of(number, tasks) for number in numbers] == [key % tasks for key in range(keys)]
    loads = Counter(task_of(number, tasks) for number in numbers)
    assert max(loads.values()) - min(loads.get(task, 0) for task in range(tasks)) <= 1
