"""The compiled writer behind `text`: rows of words to characters, one opcode for each column.

A row is, for each column, a prefix (its name in JSON, a comma in CSV) and its value or the text for null, then the end
of the row. The caller bounds the number of bytes, and allocates them. Text is copied in whole pieces of SLACK bytes, so
every source and the output must be longer than their content by SLACK.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lowmark.jit.byte_copy import SLACK, copy
from lowmark.jit.compiled import compiled
from lowmark.wire.rows.words import Words

__all__ = [
    "OP_BOOL", "OP_COMMUNITY_ID", "OP_DURATION", "OP_FLOAT", "OP_INT", "OP_IP", "OP_MAC", "OP_STR", "OP_TIME",
    "write_rows",
]  # fmt: skip

OP_INT, OP_FLOAT, OP_BOOL, OP_TIME, OP_DURATION, OP_IP, OP_MAC, OP_STR, OP_COMMUNITY_ID = range(9)

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Number = int | np.int64

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_PAIRS = np.frombuffer("".join(f"{i:02d}" for i in range(100)).encode(), np.uint8)
_TRUE = np.frombuffer(b"true".ljust(SLACK), np.uint8)
_FALSE = np.frombuffer(b"false".ljust(SLACK), np.uint8)
_MAPPED_TEXT = np.frombuffer(b"::ffff:".ljust(SLACK), np.uint8)

_QUOTE, _MINUS, _EXPONENT, _DOT, _COLON, _ZERO, _ONE, _EQUALS = 34, 45, 101, 46, 58, 48, 49, 61
_NS = 1_000_000_000
_DAYS_TO_1970 = 719_468  # from 0000-03-01, where the cycle of leap years begins
_FOUR = np.uint64(4)
_MAPPED = np.uint64(0xFFFF)


@compiled
def _digits(out: Bytes, at: int, number: Number, count: int) -> int:
    """Write the lowest `count` digits of a number from 0 to 2^31."""
    n = np.uint32(number)
    place = at + count
    while place - at >= 2:
        rest = n // np.uint32(100)
        pair = np.int64(n - rest * np.uint32(100)) * 2
        n = rest
        place -= 2
        out[place] = _PAIRS[pair]
        out[place + 1] = _PAIRS[pair + 1]
    if place > at:
        out[at] = _ZERO + n % np.uint32(10)
    return at + count


@compiled
def _unsigned(out: Bytes, at: int, number: np.uint64) -> int:
    count = 1
    if number >= np.uint64(10):
        power = np.uint64(10)
        while count < 20 and number >= power:
            count += 1
            if count < 20:
                power *= np.uint64(10)
    place = at + count
    while number >= np.uint64(100):
        rest = number // np.uint64(100)
        pair = np.int64(number - rest * np.uint64(100)) * 2
        number = rest
        place -= 2
        out[place] = _PAIRS[pair]
        out[place + 1] = _PAIRS[pair + 1]
    if number >= np.uint64(10):
        pair = np.int64(number) * 2
        out[at] = _PAIRS[pair]
        out[at + 1] = _PAIRS[pair + 1]
    else:
        out[at] = _ZERO + np.int64(number)
    return at + count


@compiled
def _signed(out: Bytes, at: int, word: np.uint64) -> int:
    if np.int64(word) < 0:
        out[at] = _MINUS
        return _unsigned(out, at + 1, np.uint64(0) - word)
    return _unsigned(out, at, word)


@compiled
def _time(out: Bytes, at: int, word: np.uint64) -> int:
    ns = np.int64(word)
    second = ns // _NS
    nanos = ns - second * _NS
    day = second // 86_400
    second -= day * 86_400
    # Days to a date: H. Hinnant, "chrono-compatible low-level date algorithms", civil_from_days.
    shifted = day + _DAYS_TO_1970
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    month = march_month + 3 if march_month < 10 else march_month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    at = _digits(out, at, year, 4)
    out[at] = _MINUS
    at = _digits(out, at + 1, month, 2)
    out[at] = _MINUS
    at = _digits(out, at + 1, day_of_year - (153 * march_month + 2) // 5 + 1, 2)
    out[at] = 84  # T
    at = _digits(out, at + 1, second // 3600, 2)
    out[at] = _COLON
    at = _digits(out, at + 1, second // 60 % 60, 2)
    out[at] = _COLON
    at = _digits(out, at + 1, second % 60, 2)
    if nanos:
        out[at] = _DOT
        if nanos % 1_000_000 == 0:
            at = _digits(out, at + 1, nanos // 1_000_000, 3)
        elif nanos % 1000 == 0:
            at = _digits(out, at + 1, nanos // 1000, 6)
        else:
            at = _digits(out, at + 1, nanos, 9)
    out[at] = 90  # Z
    return at + 1


@compiled
def _duration(out: Bytes, at: int, word: np.uint64) -> int:
    if np.int64(word) < 0:
        out[at] = _MINUS
        at += 1
        word = np.uint64(0) - word
    whole = word // np.uint64(_NS)
    nanos = np.int64(word - whole * np.uint64(_NS))
    at = _unsigned(out, at, whole)
    if nanos:
        out[at] = _DOT
        at = _digits(out, at + 1, nanos, 9)
        while out[at - 1] == _ZERO:
            at -= 1
    return at


@compiled
def _group(high: np.uint64, low: np.uint64, index: int) -> Number:
    word = high if index < 4 else low
    return np.int64(word >> np.uint64(16 * (3 - index % 4)) & _MAPPED)


@compiled
def _dotted(out: Bytes, at: int, number: np.uint64) -> int:
    at = _unsigned(out, at, number >> np.uint64(24) & np.uint64(255))
    for shift in (16, 8, 0):
        out[at] = _DOT
        at = _unsigned(out, at + 1, number >> np.uint64(shift) & np.uint64(255))
    return at


@compiled
def _ip(out: Bytes, at: int, version: np.uint64, high: np.uint64, low: np.uint64) -> int:
    if version == _FOUR:
        return _dotted(out, at, low)
    if high == 0 and low >> np.uint64(32) == _MAPPED:
        return _dotted(out, copy(out, at, _MAPPED_TEXT, 0, 7), low)
    # RFC 5952: the longest run of at least two zero groups, the first of equal ones, is written as "::".
    best, best_length, run = 8, 1, 0
    for index in range(8):
        run = run + 1 if _group(high, low, index) == 0 else 0
        if run > best_length:
            best, best_length = index + 1 - run, run
    index = 0
    while index < 8:
        if index == best:
            out[at] = _COLON
            out[at + 1] = _COLON
            at += 2
            index += best_length
            continue
        if index > 0 and index != best + best_length:
            out[at] = _COLON
            at += 1
        group = _group(high, low, index)
        for shift in (12, 8, 4, 0):
            if shift == 0 or group >> shift:
                out[at] = _HEX[group >> shift & 15]
                at += 1
        index += 1
    return at


@compiled
def _mac(out: Bytes, at: int, word: np.uint64) -> int:
    number = np.int64(word)
    for shift in (40, 32, 24, 16, 8, 0):
        out[at] = _HEX[number >> (shift + 4) & 15]
        out[at + 1] = _HEX[number >> shift & 15]
        out[at + 2] = _COLON
        at += 3
    return at - 1


@compiled
def _community_id(out: Bytes, at: int, high: np.uint64, middle: np.uint64, low: np.uint64) -> int:
    """Version 1, and the 160 bits in base64: 26 times 6 bits, 4 bits that two zeros complete, and the padding."""
    out[at] = _ONE
    out[at + 1] = _COLON
    at += 2
    for shift in range(154, -6, -6):
        if shift >= 128:
            bits = high >> np.uint64(shift - 128)
        elif shift > 122:
            bits = high << np.uint64(128 - shift) | middle >> np.uint64(shift - 64)
        elif shift >= 64:
            bits = middle >> np.uint64(shift - 64)
        elif shift >= 0:
            bits = low >> np.uint64(shift)
        else:
            bits = low << np.uint64(-shift)
        out[at] = _BASE64[np.int64(bits & np.uint64(63))]
        at += 1
    out[at] = _EQUALS
    return at + 1


@compiled
def _float(out: Bytes, at: int, text: Bytes, start: int, end: int) -> int:
    """Copy the text that Arrow gives a float, with ".0" added if it would read as an integer."""
    at = copy(out, at, text, start, end)
    for i in range(start, end):
        if text[i] in (_DOT, _EXPONENT):
            return at
    out[at] = _DOT
    out[at + 1] = _ZERO
    return at + 2


@compiled
def write_rows(
    words: Words,
    ops: npt.NDArray[np.int64],  # each column's opcode,
    offsets: npt.NDArray[np.int64],  # first word,
    prefixes: Bytes,  # and prefix: the bytes from prefix_starts[i] to prefix_starts[i + 1]
    prefix_starts: Places,
    null: Bytes,
    end: Bytes,
    quoted: bool,  # whether to put times and addresses in quotes
    strings: Bytes,  # the text of each string, quoted and escaped
    string_starts: Places,
    floats: Bytes,  # the text of each value of the FLOAT columns, one column after the other
    float_starts: Places,  # … row after row; a value without text is null
    last_time: npt.NDArray[np.uint64],  # zeros, one for each column: rows of one window have equal times,
    last_from: Places,  # which are copied from where they stand in `out`
    last_to: Places,
    out: Bytes,
    starts: Places,  # of each row in `out`; one entry more than there are rows
) -> int:
    rows, columns = words.shape[0], ops.shape[0]
    at = 0
    for row in range(rows):
        starts[row] = at
        mask = words[row, 0]
        float_column = 0
        for i in range(columns):
            at = copy(out, at, prefixes, prefix_starts[i], prefix_starts[i + 1])
            op = ops[i]
            missing = mask >> np.uint64(i) & np.uint64(1) != 0
            begin, close = 0, 0
            if op == OP_FLOAT:
                begin, close = float_starts[float_column * rows + row], float_starts[float_column * rows + row + 1]
                float_column += 1
                missing = begin == close
            if missing:
                at = copy(out, at, null, 0, null.shape[0] - SLACK)
                continue
            word = words[row, offsets[i]]
            if op == OP_INT:
                at = _signed(out, at, word)
            elif op == OP_FLOAT:
                at = _float(out, at, floats, begin, close)
            elif op == OP_BOOL:
                at = copy(out, at, _TRUE, 0, 4) if word else copy(out, at, _FALSE, 0, 5)
            elif op == OP_DURATION:
                at = _duration(out, at, word)
            elif op == OP_STR:
                code = np.int64(word)
                at = copy(out, at, strings, string_starts[code], string_starts[code + 1])
            else:
                if quoted:
                    out[at] = _QUOTE
                    at += 1
                if op == OP_TIME:
                    begin = at
                    if last_to[i] and last_time[i] == word:
                        at = copy(out, at, out, last_from[i], last_to[i])
                    else:
                        at = _time(out, at, word)
                    last_time[i], last_from[i], last_to[i] = word, begin, at
                elif op == OP_IP:
                    at = _ip(out, at, word, words[row, offsets[i] + 1], words[row, offsets[i] + 2])
                elif op == OP_COMMUNITY_ID:
                    at = _community_id(out, at, word, words[row, offsets[i] + 1], words[row, offsets[i] + 2])
                else:
                    at = _mac(out, at, word)
                if quoted:
                    out[at] = _QUOTE
                    at += 1
        at = copy(out, at, end, 0, end.shape[0] - SLACK)
    starts[rows] = at
    return at
