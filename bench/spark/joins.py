"""The Spark job's window joins against Spark's own join of two streams with watermarks: pairs a second, from the same
rows in the same run.

As in `job`: both read what has been prepared before, ours rows that were selected, in Arrow batches from Kafka, Spark's
decoded columns from parquet files, with an address as one number; both write every pair to Kafka as a JSON row. The
answers are compared by the number of their pairs and by a sum of hashes over all columns of each.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from bench.common.feeding import Feed
from bench.common.join_runs import Flows
from bench.common.settings import QUERY, Installation
from bench.common.speeds import OURS, SPARKS, Speed, print_speeds, report_speeds
from bench.spark.runs import FILES, batches, json_rows, make_topic, run_job, run_peer, speed, write_file
from lowlevel.outbox import Outgoing
from lowmark.app.kafka.broker import Broker
from lowmark.wire.kafka.clients import KafkaSettings
from lowmark.wire.kafka.topics import Topic, TopicKind

__all__ = ["Answer", "Meeting", "measure_joins"]

_FIRST = 1_714_564_800  # seconds since 1970
_TICK = 1000  # ns: Spark's times are in µs
_SOURCES = {"near": "There", "far": "Back"}
_SQL = (
    "SELECT syn.ts AS sent, ack.ts AS answered, syn.srcIP AS src, syn.destIP AS dst, syn.srcPort AS port "
    "FROM There AS syn{first}, Back AS ack{second} "
    "WHERE syn.srcIP = ack.destIP AND syn.destIP = ack.srcIP AND syn.srcPort = ack.destPort "
    "AND syn.destPort = ack.srcPort"
)
_TIMES = pa.schema([(name, pa.timestamp("us", "UTC")) for name in ("sent", "answered")])
_ODD = np.uint64(0x9E3779B185EBCA87)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Packets of two directions that are joined by their flow. Half of the batches are for warming up."""

    meets: float  # packets of the other direction that one meets, on average
    size: int  # seconds of the window
    rate: int  # packets a second of each direction
    batches: int
    tumbling: bool = False
    a_batch: int = 10  # seconds of packet time in a micro-batch

    def __post_init__(self) -> None:
        if self.batches < 2:
            raise ValueError("half of the batches are for warming up: measure at least 2")

    def __str__(self) -> str:
        return f"{self.query}, {self.meets:g} pairs a packet"

    @property
    def query(self) -> str:
        return f"tumbling {self.size} s" if self.tumbling else f"band {self.size} s"

    @property
    def sql(self) -> str:
        if self.tumbling:
            return _SQL.format(first="", second=f" [RANGE TUMBLING {self.size} seconds]")
        return _SQL.format(first=f" [RANGE {self.size} seconds]", second=" [RANGE 1 second]")

    @property
    def flows(self) -> Flows:
        span = self.size if self.tumbling else self.size + 1
        return Flows(max(1, round(self.rate * span / self.meets)), tick=_TICK)

    @property
    def seconds(self) -> range:
        return range(_FIRST, _FIRST + self.batches * self.a_batch)

    @property
    def goal(self) -> float:
        return 3.0

    @property
    def counted(self) -> str:
        return "pairs"

    @property
    def columns(self) -> Mapping[str, object]:
        return {"query": self.query, "pairs_a_packet": self.meets, "packets_per_s_of_each": self.rate}

    @property
    def mark(self) -> str:
        return f"{self.query}\n{self.meets:g} a packet"


@dataclass(frozen=True, slots=True)
class Answer:
    """A bag of pairs, in short."""

    pairs: int
    tally: int  # the sum of the hashes of all of them

    @classmethod
    def of(cls, parts: Iterable[Sequence[bytes]]) -> Answer:
        """Of JSON rows; addresses are text or numbers there."""
        pairs, tally = 0, 0
        options = pyarrow.json.ParseOptions(explicit_schema=_TIMES)
        for rows in parts:
            table = pyarrow.json.read_json(io.BytesIO(b"\n".join(rows)), parse_options=options)
            hashes = np.zeros(len(table), np.uint64)
            for name in ("sent", "answered", "src", "dst", "port"):
                hashes = (hashes ^ _numbers(table[name])) * _ODD
                hashes ^= hashes >> np.uint64(32)
            pairs += len(table)
            tally += int(hashes.sum())  # which wraps, as do hashes
        return cls(pairs, tally % (1 << 64))


def measure_joins(results: Path, loads: Sequence[Meeting]) -> None:
    speeds: list[Speed] = []
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as scratch, Broker(Path(scratch) / "broker") as broker:
        for number, load in enumerate(loads):
            ours, our_answer = _our_job(Path(scratch) / f"job{number}", broker.bootstrap, load)
            theirs, their_answer = _sparks(Path(scratch) / f"spark{number}", broker.bootstrap, load)
            if our_answer != their_answer or not our_answer.pairs:
                raise RuntimeError(f"the answers differ: {our_answer} and {their_answer}")
            print(f"{load}: the same answer, {our_answer.pairs} pairs")
            speeds += [ours, theirs]
            print_speeds(ours, theirs)
            for each in (ours, theirs):
                a_batch = our_answer.pairs / load.batches
                print(f"  {each.contender:12} writes {each.state / a_batch:.0f} bytes of state a pair")
    report_speeds(results, "spark_joins", speeds, "Pairs found a second, all pairs out")


def _our_job(folder: Path, bootstrap: str, load: Meeting) -> tuple[Speed, Answer]:
    # Finite sources, which can end; the files are never read.
    streams = {stream: {source: "not-read.pcap"} for source, stream in _SOURCES.items()}
    installation = Installation(folder, bootstrap, load.sql, streams)
    installation.create_topics()
    feed = Feed(installation, tuple(_SOURCES))
    rows_at = feed.produce(_records(feed, load))
    records = sum(len(starts) - 1 for starts in rows_at)
    installation.set_job(f"max_offsets_per_trigger = {records // load.batches}")
    sampler = run_job(installation)
    topic = Topic(TopicKind.RESULTS, QUERY, installation.config.prefix).name
    answer = Answer.of(json_rows(installation.config.kafka, topic))
    counts = _pairs(batches(installation.checkpoint, rows_at), answer)
    return speed(OURS, load, installation.checkpoint, counts, sampler), answer


def _records(feed: Feed, load: Meeting) -> Iterator[Outgoing]:
    for second in load.seconds:
        for source, stream in _SOURCES.items():
            rows = load.flows.second(stream, second, load.rate, feed.schema(source), back=source == "far")
            yield from feed.records(source, second, rows, last=second == load.seconds[-1])


def _sparks(folder: Path, bootstrap: str, load: Meeting) -> tuple[Speed, Answer]:
    for source, stream in _SOURCES.items():
        (folder / source).mkdir(parents=True)
        for number, table in enumerate(_tables(load, stream, back=source == "far")):
            write_file(folder / source, number, table)
    kafka, topic = KafkaSettings(bootstrap), f"{folder.name}-results"
    make_topic(kafka, topic)
    window = ("tumbling" if load.tumbling else "band", str(load.size))
    sampler, rows = run_peer(folder, "bench.spark.joins_peer", bootstrap, topic, *window)
    answer = Answer.of(json_rows(kafka, topic))
    return speed(SPARKS, load, folder / "checkpoint", _pairs(rows, answer), sampler), answer


def _tables(load: Meeting, stream: str, *, back: bool) -> Iterator[pa.Table]:
    """The files of one direction, some for each micro-batch."""
    for start in load.seconds[:: load.a_batch]:
        drawn = [load.flows.drawn(stream, start + second, load.rate) for second in range(load.a_batch)]
        times, flow = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
        ends = (flow, 1024 + flow % 60_000), (flow + load.flows.flows, np.full(len(flow), 443))
        (src, sport), (dst, dport) = ends[::-1] if back else ends
        columns = {"ts": pa.array(times // _TICK, pa.timestamp("us", "UTC"))}
        table = pa.table(columns | {"src": src, "dst": dst, "sport": sport, "dport": dport})
        for part in range(FILES):
            yield table.take(np.arange(part, len(table), FILES))


def _pairs(rows: Sequence[int], answer: Answer) -> list[int]:
    """Of each batch: flows are all alike, so there are as many for each row."""
    return [round(count * answer.pairs / sum(rows)) for count in rows]


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """A time's µs, an address's number, a number itself."""
    if pa.types.is_string(column.type):
        texts = pc.dictionary_encode(column.combine_chunks())
        known = np.array([int(IPv4Address(text)) for text in texts.dictionary.to_pylist()], np.uint64)
        return known[np.asarray(texts.indices.to_numpy(), np.int64)]
    numbers: npt.NDArray[np.uint64] = column.cast(pa.int64()).to_numpy().astype(np.uint64)
    return numbers
