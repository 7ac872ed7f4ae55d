from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.wire.rows.by_bucket import divided, tuples_by_pane
from lowmark.wire.rows.hashing import bucket_of, key_words
from lowmark.wire.rows.schema import Schema
from tests.wire.strategies import matrix, tables


@given(tables(), st.integers(1, 20), st.data())
def test_each_row_once_in_the_bucket_of_its_key_in_order(
    table: tuple[Schema, list[list[object]]], buckets: int, data: st.DataObject
) -> None:
    schema, rows = table
    key = tuple(data.draw(st.lists(st.sampled_from(schema.names), unique=True)))
    words = matrix(schema, rows)
    bucket = bucket_of(key_words(schema, words, key), buckets)
    found = list(divided(schema, words, key, buckets))
    assert [number for number, _ in found] == sorted(set(bucket.tolist()))
    for number, part in found:
        assert part.tolist() == words[bucket == number].tolist()


@pytest.mark.parametrize("most", [1, 16, 17, 300])
@given(st.data())
def test_tuples_of_any_number_of_panes(most: int, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(st.integers(-most // 2, most // 2), st.integers(0, 2**40)), max_size=400))
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    expected: Counter[int] = Counter()
    for pane, tuples in pairs:
        expected[pane] += tuples
    found = tuples_by_pane(columns[:, 0], columns[:, 1])
    assert found == dict(expected)
    assert list(found) == sorted(found)
