"""A batch's messages, cut into parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highlevel.spark.sink import outgoing
from highlevel.spark.sink.messages import Bundle, Position
from highlevel.spark.sink.outgoing import Outgoing, Part
from lowmark.wire.records.record import RecordKind, WireRecord, headers_of

HEADERS = headers_of(RecordKind.ROW)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "_IN_MEMORY", 50)
    monkeypatch.setattr(outgoing, "_PART_BYTES", 20)
    monkeypatch.setattr(outgoing, "_MOST_BYTES", 40)


def message(value: bytes, closes: bool = False) -> Bundle:
    return Bundle.of("t", 0, WireRecord(None, value, HEADERS), closes)


def cut(entries: list[Bundle | Position], by_position: bool = False) -> list[Part]:
    kept = Outgoing(by_position)
    for entry in entries:
        if isinstance(entry, Position):
            kept.mark(entry)
        else:
            kept.put(entry)
    parts = list(kept.parts())
    assert parts == list(kept.parts())
    kept.close()
    return parts


def values(parts: list[Part]) -> list[bytes]:
    return [value for part in parts for bundle in part.bundles for value in bundle.values()]


ENTRIES = st.lists(
    st.one_of(
        st.builds(message, st.binary(max_size=30), st.booleans()), st.builds(Position, st.integers(1, 99), st.just({}))
    ),
    max_size=30,
)


@given(ENTRIES, st.booleans())
def test_all_is_in_the_parts_in_its_order(entries: list[Bundle | Position], by_position: bool) -> None:
    parts = cut(entries, by_position)
    assert values(parts) == [value for entry in entries if isinstance(entry, Bundle) for value in entry.values()]
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True] * bool(parts)
    if not by_position:
        assert all(sum(len(bundle.data) for bundle in part.bundles) < 40 + 30 for part in parts)


def test_nothing_is_no_part() -> None:
    assert cut([Position(7, {})]) == []


def test_a_part_ends_with_a_window_or_a_position() -> None:
    window = [message(b"r" * 15), message(b"r" * 15), message(b"c", closes=True)]
    assert [values([part])[-1] for part in cut([*window, *window, message(b"x")])] == [b"c", b"c", b"x"]
    first, second = Position(5, {}), Position(9, {})
    entries = [message(b"a" * 25), first, message(b"b" * 90, closes=True), second, message(b"c")]
    whole = cut(entries, by_position=True)
    assert [part.position for part in whole] == [first, second, second]
    assert [values([part]) for part in whole] == [[b"a" * 25], [b"b" * 90], [b"c"]]


def test_a_bundle_that_is_too_large_is_split_between_its_messages() -> None:
    rows = [bytes([number]) * 9 for number in range(40)]
    starts = b"".join((9 * number).to_bytes(8, "little") for number in range(41))
    parts = cut([Bundle("t", 0, HEADERS, starts, b"".join(rows))])
    assert values(parts) == rows
    assert len(parts) > 5
    huge = cut([message(b"h" * 500), message(b"x")])
    assert values(huge) == [b"h" * 500, b"x"]
