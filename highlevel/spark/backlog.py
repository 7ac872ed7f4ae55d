"""Puts a bucket's records of a micro-batch in order without holding all of them in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import cast

from pyspark.sql import Row

__all__ = ["StoredRecord", "in_order"]

_IN_MEMORY = 64 << 20
"""Bytes of values that stay in memory; if there are more, all of them go into a file."""

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record without its value, which is passed beside it."""

    topic: str
    partition: int
    offset: int
    appended_us: int
    headers: Headers


def in_order(rows: Iterable[Row], folder: str) -> Iterator[tuple[StoredRecord, bytes | None]]:
    """Records by topic and offset. Spark orders nothing within a key, and a bucket's records are of one partition of
    each of its topics. A temporary file may go to `folder`."""
    with SpooledTemporaryFile(_IN_MEMORY, dir=folder) as values:
        places: list[tuple[StoredRecord, int, int]] = []  # start and length of the value; length -1: no value
        for row in rows:
            place, length = values.tell(), -1
            if row.value is not None:
                length = values.write(row.value)
            places.append((_stored(row), place, length))
        for record, place, length in sorted(places, key=lambda item: (item[0].topic, item[0].offset)):
            values.seek(place)
            yield record, None if length < 0 else values.read(length)


def _stored(row: Row) -> StoredRecord:
    """Spark hands nested rows to a processor as dictionaries."""
    headers = [
        (cast(str, item["key"]), None if item["value"] is None else bytes(item["value"])) for item in row.headers or ()
    ]
    return StoredRecord(row.topic, row.partition, row.offset, row.appended_us, headers)
