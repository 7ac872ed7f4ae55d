"""One record of every form, by name: what the golden bytes pin, and what the fuzz tests damage."""

from __future__ import annotations

from lowmark.wire.records.codec import Record
from lowmark.wire.records.dead_letters import DeadLetter
from lowmark.wire.records.partials import Origin, PartialBatch, tuples_per_pane
from lowmark.wire.records.punctuations import Account, Bound, Ending, LaneLedger, Promise, Punctuation, Taint
from lowmark.wire.records.quarantine import Quarantine
from lowmark.wire.records.record import BadReason
from lowmark.wire.records.registration import Presence, PresenceState, Registration, SourceKind
from lowmark.wire.records.result_rows import ResultRow, ResultRowsRecord
from lowmark.wire.records.rosters import (
    Action,
    Exclusion,
    ListedSource,
    Request,
    Retirement,
    Return,
    RosterChange,
    RosterInForce,
)
from lowmark.wire.records.sink_token import Token, Told
from lowmark.wire.records.verdicts import (
    Amendment,
    Complete,
    Correction,
    LateRow,
    Merge,
    OpenCount,
    Reason,
    Verdict,
    WindowSpan,
)
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER, NEVER
from tests.wire.strategies import V4, V6, partial_rows, result_rows

MINUTE = 60 * 10**9
T0 = 1_763_471_220 * 10**9  # 2025-11-18T13:07:00Z
NODE = Origin("9f3a5c", "host-1/eth0", 17, "main")
BUCKET = Origin("9f3a5c-2", "bucket-3", 2, "0")
LINKÖPING = Origin("9f3a5c", "Linköping/eth0", 0, "main")


def punctuation(
    promise: Promise, ledger: LaneLedger, ending: Ending = Ending.NONE, origin: Origin = NODE
) -> Punctuation:
    return Punctuation(origin, 42, promise, ledger, ending)


def complete(**changes: object) -> Complete:
    fields: dict[str, object] = {
        "query": "q8_1", "generation": 2, "bucket": 3, "buckets": 8, "windows": WindowSpan(29391186, 29391186),
        "start": T0, "end": T0 + MINUTE, "attribute": "ts", "rows": 120, "merged": 4000, "promised": 4000,
        "dropped": 0, "late": 0, "covered_from_ns": T0 - MINUTE, "rosters": (("Main", 4),),
        "verdict": Verdict(),
    }  # fmt: skip
    return Complete(**{**fields, **changes})


ROWS = partial_rows()

PORTS = ValueSet.of((53, -1))

EXAMPLES: dict[str, Record] = {
    "batch": PartialBatch(NODE, 0, ROWS, tuples_per_pane(ROWS)),
    "batch-late": PartialBatch(NODE, 7, ROWS, tuples_per_pane(ROWS), late=True),
    "batch-empty": PartialBatch(LINKÖPING, 1, ROWS.slice(0, 0), {}),
    "punctuation": punctuation(
        Promise((Bound("ts", T0),)),
        LaneLedger({"received": 10, "skipped": 1, "decoded": 9}, (Account(29391186, 4, 9), Account(29391187, 0, 0, 3))),
    ),
    "punctuation-dropped": punctuation(
        Promise((Bound("ts", T0),)),
        LaneLedger({"dropped": 12}, (), (Taint(29391186, 29395186, ("dropped",), dropped=12), Taint(1, 2, ("clock",)))),
    ),
    "punctuation-end": punctuation(Promise((), last=True), LaneLedger(), Ending.END, LINKÖPING),
    "punctuation-stop": punctuation(Promise((Bound("ts", T0 + 1),)), LaneLedger(), Ending.STOP),
    "punctuation-live": Punctuation(NODE, 42, Promise((Bound("ts", T0),)), LaneLedger(), start_ns=T0 - 500_000_000),
    "punctuation-joint": punctuation(Promise((Bound("M1.ts", T0), Bound("M2.ts", T0 - MINUTE))), LaneLedger()),
    "punctuation-values": punctuation(
        Promise((Bound("srcIP", values=ValueSet.of((V4 | 0x0A000001, V6 | 2**128 - 1))),)), LaneLedger()
    ),
    "punctuation-connections": punctuation(
        Promise((
            Bound(("conn.aIP", "conn.aPort"), values=ValueSet.of_tuples(((V4 | 0x0A000001, 53), (V6 | 1, 443)), 2)),
            Bound("ts", T0),
        )),
        LaneLedger(),
    ),
    "punctuation-joint-values": punctuation(
        Promise((Bound("ts", -5), Bound("destPort", values=PORTS), Bound("window_end", FOREVER))), LaneLedger()
    ),
    "punctuation-operator": punctuation(
        Promise((Bound("window_end", T0),)),
        LaneLedger(
            {"merged": 2**63 - 1},
            (
                Account(1, 2, 3, 4, 5),
                Account(-4, 1, 1, given_up=9),
            ),
            (Taint(-FOREVER - 1, 7, ("gap", "late")), Taint(3, FOREVER, (), True)),
        ),
        origin=BUCKET,
    ),
    "registration-live": Registration(
        "host-1/eth0", "Main", SourceKind.LIVE, None, T0 + 123_000_000, "within 50 ms", "host-1 pid 4711"
    ),
    "registration-finite": Registration(
        "Linköping", "Main", SourceKind.FINITE, "run-1", None, "scan", "host-1 pid 4711"
    ),
    "presence-asked": Presence("Linköping", 17, "host-2 pid 4712", PresenceState.ASKED),
    "presence-here": Presence("host-1/eth0", 0, "host-1 pid 4711", PresenceState.HERE),
    "presence-gone": Presence("host-1/eth0", 17, "host-1 pid 4711", PresenceState.GONE),
    "roster": RosterInForce(
        "lowmark", "Main", 7,
        (
            ListedSource("host-1/eth0"), ListedSource("host-2/eth0", T0, T0 + MINUTE),
            ListedSource("host-3/eth0", excluded=((NEVER, T0), (T0 + MINUTE, FOREVER))),
        ),
        ("host-*",), 4711, ("host-3/eth0",),
    ),
    "request": Request("lowmark", "Main", "host-2/eth0", Action.EXCLUDE, "host-9:12"),
    "quarantine": Quarantine("lowmark", (("pairs", "LimitReached in bucket 3: „too many“"), ("talkers", "x"))),
    "quarantine-none": Quarantine("lowmark", ()),
    "roster-change": RosterChange("lowmark", "Main", 4, T0, ("host-1/eth0", "host-2/eth0")),
    "roster-change-empty": RosterChange("lowmark", "Main", 5, NEVER, ()),
    "exclusion": Exclusion("lowmark", "Main", 6, T0 + 5, "host-2/eth0"),
    "return": Return("lowmark", "Main", 7, T0 + MINUTE, "host-2/eth0"),
    "retirement": Retirement("lowmark", "9f3a5c", 3),
    "row": ResultRow(2, b'{"window_start":"2025-11-18T13:07:00Z","srcIP":"10.0.0.1","count":3}'),
    "row-early": ResultRow(2, b'{"window_start":"2025-11-18T13:07:00Z","srcIP":"10.0.0.1","count":3}', early=-29),
    "rows": ResultRowsRecord(2, result_rows()),
    "rows-early": ResultRowsRecord(2, result_rows(), early=29391186),
    "complete": complete(),
    "complete-checksum": complete(checksum=4294967295),
    "complete-partial": complete(verdict=Verdict(partial=True)),
    "complete-empty-run": complete(windows=WindowSpan(-3, 5), rows=0, merged=0, promised=0, rosters=()),
    "complete-missing": complete(verdict=Verdict(frozenset({Reason.EXCLUDED})), missing=("host-2/eth0",)),
    "complete-lossy": complete(
        verdict=Verdict(frozenset(Reason), partial=True), dropped=7, late=2, merged=3990, covered_from_ns=None
    ),
    "complete-landmark": complete(start=None),
    "complete-rows": complete(attribute="row_num", kind=Kind.INT, start=-9, end=1),
    "complete-no-windows": complete(windows=None, start=None),
    "complete-no-windows-ended": complete(windows=None, start=None, end=FOREVER),
    "complete-partitions": complete(windows=None, start=None, open=OpenCount(7, 3)),
    "amendment": Amendment(
        "q8_1", 2, 3, WindowSpan(29391186, 29391190), "2025-11-18T13:07:00Z", "2025-11-18T13:12:00Z", 12, 3,
        frozenset({Reason.LATE, Reason.DROPPED}),
    ),
    "amendment-landmark": Amendment("q8_1", 2, 3, WindowSpan(1, 1), None, 20, 1, 0, frozenset({Reason.LATE})),
    "amendment-no-windows": Amendment(
        "q8_1", 2, 3, None, "2025-11-18T13:07:00Z", "2025-11-18T13:12:00Z", 0, 0, frozenset({Reason.CLOCK})
    ),
    "correction": Correction(
        "q8_1", 2, 3, WindowSpan(29391186, 29391187), "2025-11-18T13:07:00Z", "2025-11-18T13:09:00Z", 5,
        {"count": Merge.ADD, "max_load": Merge.GREATEST},
        ({"srcIP": "10.0.0.1", "count": 4, "max_load": 60.5}, {"srcIP": None, "count": 1, "max_load": None}),
    ),
    "correction-empty": Correction("q8_1", 2, 3, WindowSpan(1, 1), -9, 1, 0, {}, ()),
    "late": LateRow(
        "q8_1", 2, 3, "host-1/eth0", WindowSpan(29391186, 29391190), "2025-11-18T13:07:00Z", "2025-11-18T13:12:00Z", 7,
        {"srcIP": "10.0.0.1", "count": 7, "avg_len": 60.5, "ok": True},
    ),
    "late-landmark": LateRow("q8_1", 2, 3, "a", WindowSpan(1, 1), None, 20, 1, {}),
    "late-no-windows": LateRow("q8_1", 2, 3, "Linköping", None, None, None, 1, {"srcIP": None}),
    "dead-letter": DeadLetter(
        BadReason.VALUE, "not JSON: …", "lowmark.v1.partials.9f3a5c", 3, 99,
        (("lm-kind", b"punctuation"), ("trace", b"\x00\xff")), b'{"last":tru', 1000,
    ),
    "dead-letter-foreign": DeadLetter(BadReason.FOREIGN, "no header lm-kind", "lowmark.v1.sources", 0, 0, (), b"", 0),
    "token": Token(
        job="q8_1", checkpoint="c0ffee", run=2, batch=1234, part=1, last=True, digest="00ff", queries="ab12", read=77,
        told={"pairs": Told("a1", 70)},
    ),
}  # fmt: skip
