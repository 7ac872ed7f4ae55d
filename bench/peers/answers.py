"""Answers of contenders, and how far they are from what is true."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from bench.peers.tally import KEYS

__all__ = ["Verdict", "judge", "of_lines", "of_lowmark", "of_pmacct", "of_totals"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Groups are pairs of addresses in a minute, or in all where a contender knows no minutes (`whole`)."""

    groups: int
    wrong: int  # of the groups, in packets or bytes, or not there
    packets: int
    missing: int  # of the packets; below 0: there are more than there should be
    whole: bool

    @property
    def exact(self) -> bool:
        return self.wrong == 0

    def __str__(self) -> str:
        kind = "totals" if self.whole else "minutes"
        windows = ", no minutes" if self.whole else ""
        if self.exact:
            return f"{kind} exact{windows}"
        lost = f"; {100 * self.missing / self.packets:.1f}% of the packets missing" if self.missing else ""
        return f"{self.wrong} of {self.groups} {kind} wrong{lost}{windows}"


def judge(answer: pa.Table, expected: pa.Table, length: str, whole: bool) -> Verdict:
    """`answer` has KEYS, `packets` and `bytes`; `expected` is a tally, whose column `length` the bytes should be."""
    keys = list(KEYS[1:] if whole else KEYS)
    truth = expected.select([*keys, "packets", length]).rename_columns([*keys, "true_packets", "true_bytes"])
    given = answer.select([*keys, "packets", "bytes"])
    if whole:
        truth, given = (_added(table, keys) for table in (truth, given))
    both = truth.join(given, keys=keys, join_type="full outer")
    same = pc.and_(*(pc.fill_null(pc.equal(both[name], both[f"true_{name}"]), False) for name in ("packets", "bytes")))
    packets = _total(truth["true_packets"])
    return Verdict(
        len(truth), len(both) - _total(same.cast(pa.int64())), packets, packets - _total(given["packets"]), whole
    )


def _added(table: pa.Table, keys: list[str]) -> pa.Table:
    sums = [name for name in table.column_names if name not in keys]
    added = table.group_by(keys).aggregate([(name, "sum") for name in sums])
    return added.rename_columns([name.removesuffix("_sum") for name in added.column_names])


def _total(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


_PLAIN = (*KEYS, "packets", "bytes")


def _table(columns: Iterable[Iterable[object]]) -> pa.Table:
    kinds = (pa.int64(), pa.string(), pa.string(), pa.int64(), pa.int64())
    return pa.table([pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)], list(_PLAIN))


def of_lowmark(folder: Path) -> pa.Table:
    """JSON lines of the query."""
    starts: dict[str, int] = {}
    rows = []
    with (folder / "out").open() as file:
        for line in file:
            row = json.loads(line)
            text = row["window_start"]
            if text not in starts:
                starts[text] = int(datetime.fromisoformat(text).timestamp())
            rows.append((starts[text], row["srcIP"], row["destIP"], row["packets"], row["bytes"]))
    return _table(zip(*rows, strict=True) if rows else ((),) * 5)


def of_lines(folder: Path) -> pa.Table:
    """Lines of the five columns."""
    return _csv(folder / "out", list(_PLAIN), " ")


def of_totals(folder: Path) -> pa.Table:
    """Lines of all columns but the minute, with any number of blanks before each."""
    squeezed = folder / "squeezed"
    with (folder / "out").open("rb") as lines, squeezed.open("wb") as file:
        subprocess.run(["awk", "{ print 0, $1, $2, $3, $4 }"], stdin=lines, stdout=file, check=True)
    return _csv(squeezed, list(_PLAIN), " ")


def of_pmacct(folder: Path) -> pa.Table:
    """A file a minute, named after its start."""
    parts = []
    for file in sorted(folder.glob("*.csv")):
        rows = _csv(file, list(_PLAIN[1:]), ",", header=True)
        minutes = pa.array([int(file.stem)] * len(rows), pa.int64())
        parts.append(rows.add_column(0, "minute", minutes))
    return pa.concat_tables(parts) if parts else _table(((),) * 5)


def _csv(path: Path, names: list[str], delimiter: str, header: bool = False) -> pa.Table:
    kinds = dict(zip(_PLAIN, (pa.int64(), pa.string(), pa.string(), pa.int64(), pa.int64()), strict=True))
    if not path.stat().st_size:
        return _table(((),) * 5)
    return pacsv.read_csv(
        path,
        read_options=pacsv.ReadOptions(column_names=names, skip_rows=1 if header else 0),
        parse_options=pacsv.ParseOptions(delimiter=delimiter),
        convert_options=pacsv.ConvertOptions(column_types={name: kinds[name] for name in names}),
    )
