"""State of buckets in the middle of their input, as a released version wrote it, with the records before and behind."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Forward, Output
from highlevel.progress.records import Arrival, Batch, Record, batch_of_wire, wire_of_batch
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryByteStore, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.options import Late
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.partials import PartialBatch
from lowmark.wire.records.punctuations import Punctuation
from tests.acceptance.bucketrun import records_of
from tests.acceptance.interleaved import packets_of
from tests.acceptance.traffic import Traffic

FOLDER = Path(__file__).parent / "versions"
TRAFFIC = Traffic(11, (("A", 60), ("A", 40), ("B", 60)), 3, True)
ROSTER = Roster.of({"A": ("A-0", "A-1"), "B": ("B-0",)})

QUERIES = {
    "paned": "SELECT srcIP, count(*), sum(len) [RANGE 4 seconds, SLIDE 2 seconds, WA ts] FROM A GROUP BY srcIP",
    "holistic": "SELECT median(len), count(distinct destPort) [RANGE TUMBLING 3 seconds, WA ts] FROM A",
    "landmark": "SELECT proto, count(*) [RANGE ALL, SLIDE 2 seconds, WA ts] FROM A GROUP BY proto",
    "top": "SELECT destPort, count(*) AS n [RANGE TUMBLING 4 seconds, WA ts] FROM A GROUP BY destPort "
    "ORDER BY n DESC LIMIT 2",
    "groups": "SELECT ts/2 AS tick, count(*) FROM A GROUP BY ts/2",
    "rows": "SELECT srcIP, count(*) [RANGE 6 rows, SLIDE 3 rows, WA row_num, PA srcIP] FROM A GROUP BY srcIP",
    "join": "SELECT A.ts, B.ts, A.srcIP FROM A [RANGE 3 seconds], B [RANGE 2 seconds] WHERE A.srcIP = B.srcIP",
    "outer": "SELECT A.ts, B.ts FROM A [RANGE 2 seconds] LEFT JOIN B [RANGE 2 seconds] ON A.srcIP = B.destIP",
    "chosen": "SELECT ts, srcIP FROM A WHERE destPort = 80",
}


@dataclass(frozen=True)
class Stored:
    """`cut`: so many records had been taken when `pieces` were written."""

    plan: QueryPlan
    records: tuple[Record, ...]
    cut: int
    pieces: dict[tuple[str, int], bytes]


def plan_of(name: str) -> QueryPlan:
    late = Late.CORRECT if name == "paned" else Late.COUNT
    return compile_query(QUERIES[name], name=name, streams={"A": 2, "B": 1}, buckets=1, late=late)


def run(plan: QueryPlan, records: Sequence[Record], first: int, store: MemoryByteStore) -> list[Output]:
    """Take the records as those from position `first` on, and what comes back through exchanges."""
    state = PiecewiseState(store, plan.stage.fingerprint)
    driver = BucketDriver(plan.stage, (plan,), 0, state, ROSTER, 1)
    outputs, coming, position = list[Output](), list(records), first
    while coming:
        for record in coming:
            driver.take(record, Arrival(position))
            position += 1
        found = driver.flush().outputs
        coming = [output.record for output in found if isinstance(output, Forward)]
        outputs += (output for output in found if not isinstance(output, Forward))
    state.commit()
    return outputs


def make() -> list[Stored]:
    made = []
    for name in QUERIES:
        plan, random, streams = plan_of(name), Random(7), packets_of(TRAFFIC)
        lanes = [
            records_of(plan, node, stream, rank, packets, random)[0]
            for stream, sources in streams.items()
            for rank, packets in enumerate(sources)
            for node in plan.stage.nodes
            if stream in node.streams
        ]
        turns = [number for number, lane in enumerate(lanes) for _ in lane]
        random.shuffle(turns)
        queues = [iter(lane) for lane in lanes]
        records = tuple(next(queues[turn]) for turn in turns)
        store, cut = MemoryByteStore(), len(records) // 2
        run(plan, records[:cut], 0, store)
        made.append(Stored(plan, records, cut, store.pieces))
    return made


def write(path: Path, made: Iterable[Stored]) -> None:
    form = [
        {
            "query": of.plan.name,
            "cut": of.cut,
            "records": [_record(of.plan, record) for record in of.records],
            "pieces": [[space, key, base64.b64encode(piece).decode()] for (space, key), piece in of.pieces.items()],
        }
        for of in made
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(form).encode(), 9, mtime=0))


def _record(plan: QueryPlan, record: Record) -> list[object]:
    assert isinstance(record, Batch | Punctuation)
    wire = encode(record if isinstance(record, Punctuation) else wire_of_batch(record, _schema(plan, record)))
    headers = [[name, base64.b64encode(value).decode()] for name, value in wire.headers]
    return [headers, base64.b64encode(wire.value).decode()]


def _schema(plan: QueryPlan, record: Batch | PartialBatch):
    return next(node.reduction.schema for node in plan.stage.nodes if node.name == record.origin.node)


def read(path: Path) -> list[Stored]:
    found = []
    for of in json.loads(gzip.decompress(path.read_bytes())):
        plan = plan_of(of["query"])
        schemas = {node.name: node.reduction.schema for node in plan.stage.nodes}
        records: list[Record] = []
        for headers, value in of["records"]:
            plain = [(name, base64.b64decode(text)) for name, text in headers]
            record = decode(plain, base64.b64decode(value), lambda origin, known=schemas: known.get(origin.node))
            if isinstance(record, PartialBatch):
                record = batch_of_wire(record, _schema(plan, record))
            assert isinstance(record, Batch | Punctuation), record
            records.append(record)
        pieces = {(space, key): base64.b64decode(piece) for space, key, piece in of["pieces"]}
        found.append(Stored(plan, tuple(records), of["cut"], pieces))
    return found
