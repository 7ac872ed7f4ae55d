from __future__ import annotations

from random import Random
from zlib import crc32

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowmark.wire.records.row_checksums import checksum_of, checksum_of_values


@given(st.lists(st.binary(max_size=40)), st.integers(0, 2**32 - 1), st.randoms(use_true_random=False))
def test_the_checksum_is_the_sum_of_the_crcs_in_any_order(values: list[bytes], before: int, random: Random) -> None:
    starts = np.cumsum([0, *map(len, values)]).astype(np.int64)
    expected = (before + sum(map(crc32, values))) % (1 << 32)
    assert checksum_of_values(b"".join(values), starts, before) == expected
    random.shuffle(values)
    for value in values:
        before = checksum_of(value, before)
    assert before == expected
