"""The bucket of a row: XXH64 (seed 0) of the canonical bytes of its key, modulo the number of buckets.

The canonical bytes are 64-bit little-endian words: the null mask of the key (bit i set: its i-th column is null), then
each column's words. An address is its version (4 or 6), then the high and the low half of its 128 bits; a Community ID
is its 160 bits in three words, the high one first; -0.0 is 0.0, and all NaNs are one; a string is the XXH64 of its
UTF-8 bytes, so that the codes of different dictionaries agree. All hosts and exchanges use this function, and golden
vectors pin it: a change of it changes every stage's fingerprint.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lowmark.jit.compiled import compiled
from lowmark.wire.rows.schema import Kind, Schema
from lowmark.wire.rows.words import Words

__all__ = ["HASH_NAME", "bucket_of", "hash_rows", "key_words", "xxh64"]

HASH_NAME = "xxh64-words-2"
"""Identifies this module's function in a stage's fingerprint."""

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LANES = np.array([0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579], np.uint64)  # P1 + P2, P2, 0, -P1

_NAN = np.uint64(0x7FF8000000000000)
_FLOAT_EXPONENT = np.uint64(0x7FF0000000000000)
_FLOAT_MAGNITUDE = np.uint64(0x7FFFFFFFFFFFFFFF)


@compiled
def _rotate(word: np.uint64, by: int) -> np.uint64:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@compiled
def _round(lane: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate(lane + word * _P2, 31) * _P1


@compiled
def _join(lanes: npt.NDArray[np.uint64]) -> np.uint64:
    h = _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
    for i in range(4):
        h = (h ^ _round(np.uint64(0), lanes[i])) * _P1 + _P4
    return h


@compiled
def _tail_word(h: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate(h ^ _round(np.uint64(0), word), 27) * _P1 + _P4


@compiled
def _avalanche(h: np.uint64) -> np.uint64:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


@compiled
def _hash_words(row: npt.NDArray[np.uint64], lanes: npt.NDArray[np.uint64]) -> np.uint64:
    count = row.shape[0]
    done = 0
    if count >= 4:
        for i in range(4):
            lanes[i] = _LANES[i]
        while done + 4 <= count:
            for i in range(4):
                lanes[i] = _round(lanes[i], row[done + i])
            done += 4
        h = _join(lanes)
    else:
        h = _P5
    h += np.uint64(8 * count)
    for i in range(done, count):
        h = _tail_word(h, row[i])
    return _avalanche(h)


@compiled
def _hash_bytes(data: npt.NDArray[np.uint8]) -> np.uint64:
    words = data[: data.shape[0] // 8 * 8].view(np.uint64)
    size, done = data.shape[0], 0
    if size >= 32:
        lanes = _LANES.copy()
        while done + 4 <= words.shape[0]:
            for i in range(4):
                lanes[i] = _round(lanes[i], words[done + i])
            done += 4
        h = _join(lanes)
    else:
        h = _P5
    h += np.uint64(size)
    for i in range(done, words.shape[0]):
        h = _tail_word(h, words[i])
    at = 8 * words.shape[0]
    if at + 4 <= size:
        word = np.uint64(0)
        for i in range(4):
            word |= np.uint64(data[at + i]) << np.uint64(8 * i)
        h = _rotate(h ^ word * _P1, 23) * _P2 + _P3
        at += 4
    for i in range(at, size):
        h = _rotate(h ^ np.uint64(data[i]) * _P5, 11) * _P1
    return _avalanche(h)


@compiled
def _hash_rows(words: npt.NDArray[np.uint64], lanes: npt.NDArray[np.uint64], out: npt.NDArray[np.uint64]) -> None:
    for i in range(words.shape[0]):
        out[i] = _hash_words(words[i], lanes)


@compiled
def _buckets(
    words: npt.NDArray[np.uint64], buckets: np.uint64, lanes: npt.NDArray[np.uint64], out: npt.NDArray[np.int32]
) -> None:
    for i in range(words.shape[0]):
        out[i] = np.int32(_hash_words(words[i], lanes) % buckets)


def xxh64(data: bytes) -> int:
    """XXH64 of any bytes, with seed 0."""
    return int(_hash_bytes(np.frombuffer(data, np.uint8)))


@lru_cache(maxsize=256)
def _string_words(strings: tuple[str, ...]) -> Words:
    return np.array([xxh64(string.encode()) for string in strings], np.uint64)


def key_words(schema: Schema, words: Words, key: tuple[str, ...]) -> Words:
    """The canonical words [n, K] of the rows' keys; `words` is a matrix of the schema."""
    layout = _layout(schema, key)
    result = np.empty((len(words), 1 + len(layout)), np.uint64)
    _copy_keys(words, layout, result)
    at = 1
    for name in key:
        column = schema.column(name)
        if column.kind is Kind.FLOAT:
            _normalise_floats(result[:, at])
        elif column.kind is Kind.STR and schema.strings:
            coded = words[:, 0] >> np.uint64(schema.index(name)) & np.uint64(1) == 0
            result[coded, at] = _string_words(schema.strings)[result[coded, at].view(np.int64)]
        at += column.kind.words
    return result


@lru_cache(maxsize=256)
def _layout(schema: Schema, key: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """For each word of a key: its index in a row, its null bit in the row, and its null bit in the key."""
    return np.array(
        [
            (schema.offset(name) + word, schema.index(name), position)
            for position, name in enumerate(key)
            for word in range(schema.column(name).kind.words)
        ],
        np.int64,
    ).reshape(-1, 3)


@compiled
def _copy_keys(words: npt.NDArray[np.uint64], layout: npt.NDArray[np.int64], out: npt.NDArray[np.uint64]) -> None:
    """Copy the keys; null values become 0."""
    for i in range(words.shape[0]):
        nulls, mask = words[i, 0], np.uint64(0)
        for word in range(layout.shape[0]):
            null = nulls >> np.uint64(layout[word, 1]) & np.uint64(1)
            mask |= null << np.uint64(layout[word, 2])
            out[i, word + 1] = np.uint64(0) if null else words[i, layout[word, 0]]
        out[i, 0] = mask


def _normalise_floats(bits: Words) -> None:
    magnitude = bits & _FLOAT_MAGNITUDE
    bits[magnitude == 0] = 0
    bits[magnitude > _FLOAT_EXPONENT] = _NAN


def hash_rows(words: Words) -> Words:
    """XXH64 of each row's little-endian bytes; `words` is C-contiguous [n, K], as `key_words` gives it."""
    out = np.empty(len(words), np.uint64)
    _hash_rows(words, np.empty(4, np.uint64), out)
    return out


def bucket_of(words: Words, buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of each key; `words` as `key_words` gives them."""
    if not 0 < buckets < 2**31:
        raise ValueError(f"{buckets} buckets: at least one is needed, and fewer than 2^31")
    out = np.empty(len(words), np.int32)
    _buckets(words, np.uint64(buckets), np.empty(4, np.uint64), out)
    return out
