"""Which promises the process that rules goes by, when it chooses from what time on a source joins."""

from __future__ import annotations

from highlevel.progress.future_records import MAX_AHEAD_NS
from highlevel.progress.records import Arrival
from lowmark.app.job.promised_times import believed
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Bound, LaneLedger, Promise, Punctuation
from lowmark.wire.records.registration import SourceKind
from tests.progress.harness import FINGERPRINT, STAGE, WIDTH

NODE = STAGE.nodes[0]


def found(below: int, kind: SourceKind, appended_ns: int) -> int | None:
    promise = Promise((Bound(NODE.reduction.pane.attribute, below),))
    record = Punctuation(Origin("a", 1, FINGERPRINT, NODE.name), 0, promise, LaneLedger())
    return believed(record, NODE, Arrival(0, kind, appended_ns))


def test_a_clock_that_is_ahead_moves_no_roster_into_the_future() -> None:
    """Buckets refuse such a record: their windows close long before, and lack what the new source sends until then."""
    ahead = MAX_AHEAD_NS + 2 * WIDTH
    assert found(ahead, SourceKind.LIVE, 0) is None
    assert found(ahead, SourceKind.LIVE, ahead) == ahead // WIDTH * WIDTH
    assert found(ahead, SourceKind.FINITE, 0) == ahead // WIDTH * WIDTH
