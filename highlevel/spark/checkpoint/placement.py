"""The number that stands for a (stage, bucket) as Spark's grouping key, so that tasks get even shares of the buckets.

Spark sends a key to task pmod(murmur3(key), tasks). Small numbers fall unevenly (0…3 over two tasks: three and one), so
numbers are chosen that go to the tasks in turn. They are chosen once and stored beside the checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count

__all__ = ["placed", "placements", "task_of"]

_SEED = 42  # Spark's for hash partitioning
_MASK = 0xFFFF_FFFF


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def _murmur3(value: int) -> int:
    """Murmur3 (x86, 32 bits) of one int32, equal to org.apache.spark.unsafe.hash.Murmur3_x86_32.hashInt."""
    mixed = _rotated(value * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    hashed = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    hashed ^= 4  # bytes
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    return hashed ^ hashed >> 16


def task_of(number: int, tasks: int) -> int:
    """The task to which Spark sends the rows of an int32 key."""
    hashed = _murmur3(number & _MASK)
    return (hashed - (1 << 32) if hashed >> 31 else hashed) % tasks


def placed(existing: Collection[int], keys: int, tasks: int) -> tuple[int, ...]:
    """Numbers for so many more keys, none of them taken: each goes to a task with the fewest."""
    load = [0] * tasks
    for number in existing:
        load[task_of(number, tasks)] += 1
    taken, chosen = set(existing), list[int]()
    for _ in range(keys):
        task = load.index(min(load))
        number = next(number for number in count() if number not in taken and task_of(number, tasks) == task)
        load[task] += 1
        taken.add(number)
        chosen.append(number)
    return tuple(chosen)


def placements(keys: int, tasks: int) -> tuple[int, ...]:
    """One distinct number per key; key i goes to task i mod tasks."""
    free: list[list[int]] = [[] for _ in range(tasks)]
    numbers = count()
    chosen = []
    for key in range(keys):
        while not free[key % tasks]:
            number = next(numbers)
            free[task_of(number, tasks)].append(number)
        chosen.append(free[key % tasks].pop(0))
    return tuple(chosen)
