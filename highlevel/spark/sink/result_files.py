"""Files in which executors pass their results to the sink, beside the checkpoint, on the file system that both share.

As Spark's own rows, all results of a micro-batch would have to fit into the heap of its driver. A parcel is the output
of one bucket in one micro-batch. `background_delivery` makes it durable before Spark commits the batch.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from highlevel.spark.sink.messages import Bundle, Position

__all__ = ["ParcelWriter", "Parcels"]

_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
        ("starts", pa.large_binary()),
        ("data", pa.large_binary()),
        ("offset", pa.int64()),  # of a position, with its metadata as the data; null: a bundle
    ]
)


class ParcelWriter:
    """A file that is created with the first bundle. Bundles are read in the order in which they were put."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name: str | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def put(self, bundle: Bundle) -> None:
        if self._writer is None:
            self._name = uuid.uuid4().hex  # an attempt that Spark has given up may still write: to its own file
            self._writer = pa.ipc.new_stream(pa.OSFile(str(self._folder / self._name), "wb"), _SCHEMA)
        headers = [{"name": name, "value": value} for name, value in bundle.headers]
        _write(self._writer, (bundle.topic, bundle.partition, headers, bundle.starts, bundle.data, None))

    def close(self, position: Position | None) -> str | None:
        """The file's name; None if it would be empty. The position comes last: without any results, nobody needs its
        move."""
        if self._writer is not None:
            if position is not None:
                data = position.metadata.encode()
                _write(self._writer, (position.topic, position.partition, [], b"", data, position.offset))
            self._writer.close()
        return self._name


def _write(writer: pa.ipc.RecordBatchStreamWriter, row: tuple[object, ...]) -> None:
    arrays = [pa.array([value], field.type) for value, field in zip(row, _SCHEMA, strict=True)]
    writer.write_batch(pa.record_batch(arrays, schema=_SCHEMA))


class Parcels:
    """A folder of parcels; the driver's side."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def clear(self) -> None:
        """Create or empty the folder; this also removes what killed executors have left."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            (self._folder / name).unlink()

    def bundles(self, names: Sequence[str]) -> Iterable[Bundle | Position]:
        """The bundles of these parcels, one parcel after the other, each read when needed; can be iterated again."""
        return _Bundles([self._folder / name for name in names])


@dataclass(frozen=True, slots=True)
class _Bundles:
    files: Sequence[Path]

    def __iter__(self) -> Iterator[Bundle | Position]:
        for path in self.files:
            with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    yield _read(batch)


def _read(batch: pa.RecordBatch) -> Bundle | Position:
    topic, partition, headers, starts, data, offset = (column[0] for column in batch.columns)
    if offset.is_valid:
        return Position(topic.as_py(), partition.as_py(), offset.as_py(), data.as_py().decode())
    return Bundle(
        topic.as_py(),
        partition.as_py(),
        tuple((header["name"], header["value"]) for header in headers.as_py()),
        starts.as_py(),
        data.as_py(),
    )
