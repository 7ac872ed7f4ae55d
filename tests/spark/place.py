"""Topics and a job of a test's own, and what stands in them."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import numpy as np

from highlevel.spark.sink.bucket_sink import BucketSink
from highlevel.spark.sink.claims import Claims
from highlevel.spark.sink.messages import Bundle, Position
from highlevel.spark.sink.results_history import History, read_history
from highlevel.spark.sink.token_notes import note_of, token_of
from highlevel.spark.sink.tokens import restated
from highlevel.spark.sink.transaction import Note, Transactions
from highlevel.spark.sink.transaction import Place as Where
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import KafkaSettings, admin, ensure_topics
from lowmark.wire.kafka.topics import Provision, Topic, TopicKind, settings_of
from lowmark.wire.records.announcements import result_headers
from lowmark.wire.records.codec import encode
from lowmark.wire.records.record import RecordKind
from lowmark.wire.records.sink_token import Token, Told
from lowmark.wire.records.verdicts import Complete, Verdict, WindowSpan
from tests.integration.committed import committed_messages

PARTITIONS = 2


class Place:
    """Topics and a job of a test's own."""

    def __init__(self, broker: str) -> None:
        name = uuid4().hex[:8]
        self.settings = KafkaSettings(broker)
        self.job = f"job-{name}"
        self.results = Topic(TopicKind.RESULTS, f"q-{name}").name
        wanted = [
            settings_of(Topic(TopicKind.RESULTS, f"q-{name}"), PARTITIONS, Provision()),
        ]
        assert ensure_topics(admin(self.settings), wanted) == []

    def sink(self, partition: int = 0) -> BucketSink:
        """A process of its own, as it were, that writes for a bucket."""
        return BucketSink(self.settings, self.place(partition), 60, Watchdog(lambda reason: None))

    def place(self, partition: int = 0) -> Where:
        return Where(f"{self.job}.{partition}", self.results, partition)  # any topic will do

    def stored(self, partition: int = 0) -> Token | None:
        """As a new process finds it, which fences all others."""
        note = Transactions(self.settings, self.place(partition), 60, Watchdog(lambda reason: None)).open()
        return None if note is None else token_of(note, self.job)

    def claim(self, checkpoint: str = "checkpoint", run: int = 1) -> None:
        claims = Claims(self.settings, 60, Watchdog(lambda reason: None))
        places = [self.place(partition) for partition in range(PARTITIONS)]
        found = claims.fence(places)
        tokens = {name: None if note is None else token_of(note, name) for name, note in found.items()}
        claims.write({name: note_of(restated(token, self.job, checkpoint, run)) for name, token in tokens.items()})

    def position(self, offset: int) -> Position:
        return Position(offset, {"q": Told("law", offset)})

    def rows(self, values: list[bytes], partition: int = 0, generation: int = 1) -> Bundle:
        starts = np.cumsum([0, *map(len, values)]).astype(np.int64)
        headers = result_headers(RecordKind.ROW, generation)
        return Bundle(self.results, partition, headers, starts.tobytes(), b"".join(values))

    def complete(self, window: int, partition: int = 0, generation: int = 1) -> Bundle:
        complete = Complete(
            query="q", generation=generation, bucket=partition, buckets=PARTITIONS, windows=WindowSpan(window, window),
            start=window * 10, end=window * 10 + 10, attribute="ts", rows=1, merged=1, promised=1, dropped=0, late=0,
            covered_from_ns=None, rosters=(), verdict=Verdict(),
        )  # fmt: skip
        return Bundle.of(self.results, partition, encode(complete))

    def token(self, batch: int, digest: str, run: int = 1) -> Token:
        """That of a batch, without its part."""
        return Token(job=self.job, checkpoint="checkpoint", run=run, batch=batch, part=0, last=False, digest=digest)

    def read(self) -> list[tuple[int, bytes]]:
        """All that a read_committed consumer sees: (partition, value)."""
        places = [(self.results, partition) for partition in range(PARTITIONS)]
        return [(message.partition(), message.value()) for message in committed_messages(self.settings, places)]

    def history(self, partials: Mapping[str, tuple[str, int]] | None = None) -> History:
        """As a job reads it: all that the one before has committed is visible when its buckets are claimed."""
        Transactions(self.settings, self.place(), 60, Watchdog(lambda reason: None)).open()
        return read_history(self.settings, {"q": (self.results, PARTITIONS)}, {}, partials or {}, self.job)

    def put(self, *bundles: Bundle) -> None:
        """In a transaction, without any token."""
        transactions = Transactions(self.settings, self.place(), 60, Watchdog(lambda reason: None))
        transactions.open()
        transactions.write(bundles, Note(0, ""))
