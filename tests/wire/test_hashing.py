from __future__ import annotations

import json
import struct
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from lowmark.wire.rows.hashing import HASH_NAME, bucket_of, hash_rows, key_words, xxh64
from lowmark.wire.rows.schema import Column, Kind, Schema
from tests.wire.strategies import STRINGS, matrix, tables

GOLDEN = json.loads((Path(__file__).parent / "golden" / "buckets.json").read_text())


def canonical_bytes(schema: Schema, row: list[object], key: tuple[str, ...]) -> bytes:
    """The definition, written down a second time."""
    mask, body = 0, b""
    for position, name in enumerate(key):
        kind, value = schema.column(name).kind, row[schema.index(name)]
        if value is None:
            mask |= 1 << position
            body += bytes(8 * kind.words)
        elif kind.words > 1:
            words = (value >> 64 * place & 2**64 - 1 for place in reversed(range(kind.words)))
            body += struct.pack(f"<{kind.words}Q", *words)
        elif kind is Kind.FLOAT:
            body += struct.pack("<Q", 0x7FF8 << 48) if value != value else struct.pack("<d", value or 0.0)
        elif kind is Kind.STR:
            body += xxhash.xxh64_digest(schema.strings[value].encode())[::-1]
        else:
            body += struct.pack("<q", value)
    return struct.pack("<Q", mask) + body


@given(st.binary(max_size=200))
def test_xxh64_of_bytes(data: bytes) -> None:
    assert xxh64(data) == xxhash.xxh64_intdigest(data)


@given(tables(), st.data())
def test_hash_of_keys(table: tuple[Schema, list[list[object]]], data: st.DataObject) -> None:
    schema, rows = table
    key = tuple(data.draw(st.lists(st.sampled_from(schema.names), unique=True)))
    words = key_words(schema, matrix(schema, rows), key)
    expected = [xxhash.xxh64_intdigest(canonical_bytes(schema, row, key)) for row in rows]
    assert hash_rows(words).tolist() == expected
    buckets = data.draw(st.integers(1, 1000))
    assert bucket_of(words, buckets).tolist() == [h % buckets for h in expected]


@pytest.mark.parametrize("width", range(1, 14))
def test_hash_of_any_width(width: int) -> None:
    words = np.random.default_rng(width).integers(0, 2**64, (50, width), np.uint64)
    assert hash_rows(words).tolist() == [xxhash.xxh64_intdigest(row.tobytes()) for row in words]


def test_codes_of_different_dictionaries_agree() -> None:
    column = (Column("s", Kind.STR, nullable=True),)
    one, other = Schema(column, ("a", "c")), Schema(column, ("a", "b", "c"))
    left = key_words(one, matrix(one, [[0], [1], [None]]), ("s",))
    right = key_words(other, matrix(other, [[0], [2], [None]]), ("s",))
    assert (left == right).all()


@pytest.mark.parametrize("buckets", [0, -1, 2**31])
def test_bad_numbers_of_buckets(buckets: int) -> None:
    with pytest.raises(ValueError, match="buckets"):
        bucket_of(np.zeros((1, 1), np.uint64), buckets)


def _address(text: str) -> int:
    return ip_address(text).version << 128 | int(ip_address(text))


_READ = {"float": float, "ip": _address}


def test_golden_vectors() -> None:
    """Other hosts, other versions and topics that exist already depend on these numbers."""
    assert GOLDEN["hash"] == HASH_NAME
    assert tuple(GOLDEN["strings"]) == tuple(sorted(STRINGS))
    for case in GOLDEN["cases"]:
        columns = tuple(Column(f"c{i}", Kind(kind), nullable=True) for i, kind in enumerate(case["kinds"]))
        schema = Schema(columns, tuple(GOLDEN["strings"]))
        row = [_READ.get(kind, int)(value) if value is not None else None
               for kind, value in zip(case["kinds"], case["row"], strict=True)]  # fmt: skip
        words = key_words(schema, matrix(schema, [row]), schema.names)
        assert hash_rows(words).tolist() == [int(case["xxh64"], 16)], case
        assert {str(n): int(bucket_of(words, n)[0]) for n in (1, 7, 64, 1000)} == case["buckets"], case
