from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.wire.records.sink_token import Told, decode_told, encode_told

TOLD = {"pairs": Told("00ff", 12), "free": Told("a0", 0)}
WRITTEN = '{"told":[["free","a0",0],["pairs","00ff",12]]}'


def test_how_far_queries_have_been_told_is_written_as_this() -> None:
    assert encode_told(TOLD) == WRITTEN
    assert decode_told(WRITTEN) == TOLD


@given(st.dictionaries(st.text(max_size=200), st.builds(Told, st.text(max_size=200), st.integers(0, 2**63 - 1))))
def test_what_has_room_is_read_again(told: dict[str, Told]) -> None:
    """Of many queries some are left out; nothing is changed."""
    written = encode_told(told)
    assert len(written.encode()) < 4096
    assert decode_told(written).items() <= told.items()


def test_of_many_queries_those_are_kept_that_come_first() -> None:
    many = {f"query-{number:04}": Told("0123456789abcdef", 10**12) for number in range(200)}
    kept = decode_told(encode_told(many))
    assert list(kept) == sorted(many)[: len(kept)]
    assert len(kept) > 50


@pytest.mark.parametrize(
    "metadata", ["", "x", "[]", "{}", '{"told":[7]}', '{"told":[["q","law"]]}', '{"told":[["q","law",-1]]}']
)
def test_what_another_program_has_left_there_says_nothing(metadata: str) -> None:
    assert decode_told(metadata) == {}
