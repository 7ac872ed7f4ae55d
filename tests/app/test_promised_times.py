"""Which promises the process that rules goes by, when it chooses from what time on a source joins."""

from __future__ import annotations

from highlevel.progress.future_records import MAX_AHEAD_NS
from highlevel.progress.records import Arrival
from lowmark.app.job.promised_times import believed, furthest
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Bound, LaneLedger, Promise, Punctuation
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.rows.values import FOREVER
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


def test_a_stream_is_over_when_all_of_its_sources_have_said_so() -> None:
    """Their promises from before do not count: a source that joins then would find all windows closed."""
    ended = {("f00d", "main"): {"a": FOREVER, "b": FOREVER}}
    assert furthest(ended) == FOREVER
    assert furthest({**ended, ("f00d", "other"): {"a": FOREVER, "c": 40}}) == 40
    assert furthest({}) is None
