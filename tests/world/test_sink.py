"""The sink of a bucket on a simulated broker that is slow."""

from __future__ import annotations

import numpy as np
import pytest

from highlevel.spark.errors import JobFailed
from highlevel.spark.sink.bucket_sink import BucketSink
from highlevel.spark.sink.claims import Claims
from highlevel.spark.sink.messages import Bundle
from highlevel.spark.sink.outgoing import Part
from highlevel.spark.sink.token_notes import note_of
from highlevel.spark.sink.tokens import before_the_first, restated
from highlevel.spark.sink.transaction import Place
from lowmark.watchdog import Watchdog
from lowmark.wire.records.sink_token import Token
from tests.world.capture import KAFKA
from tests.world.clients import Broker
from tests.world.clock import Clock
from tests.world.job import wired
from tests.world.network import Network, Process

_PLACE = Place("job.stage.0", "results", 0)
_BATCH = Token(job="job", checkpoint="c", run=1, batch=0, part=0, last=False, digest="d")


def _rows(count: int) -> Bundle:
    starts = np.arange(count + 1, dtype=np.int64)
    return Bundle(_PLACE.topic, 0, (), starts.tobytes(), b"r" * count)


def test_a_part_that_outlasts_the_time_limit_is_told_with_what_to_do() -> None:
    clock = Clock()
    network = Network(lambda count: None, clock.pass_by, lambda text: None)
    broker = Broker(clock, network)
    broker.log.make(_PLACE.topic, 1)
    inert = Watchdog(lambda reason: None)
    with broker.in_force(), wired(broker, 1 << 20), clock.in_force(), network.running(Process("worker")):
        with Claims(KAFKA, 20, inert) as claims:
            claims.fence([_PLACE])
            claims.write({_PLACE.name: note_of(restated(None, "job", "c", 1))})
        network.slow_s = 4.0
        sink = BucketSink(KAFKA, _PLACE, 20, inert)
        past = before_the_first("c")
        sink.begin(past, _BATCH, None)
        assert sink.write(past, _BATCH, [Part([_rows(3)], None, last=False)]).part == 0
        with pytest.raises(JobFailed) as caught:
            sink.write(past, _BATCH, [Part([_rows(3)], None, last=False), Part([_rows(9)], None, last=True)])
    assert str(caught.value) == (
        "batch 0 could not be written: Kafka has undone a part of 9 bytes 5 times. Each time it took longer than "
        "job.transaction_timeout (20 s), or another process began to write as job.stage.0. Raise "
        "job.transaction_timeout, or find out why the brokers are slow, or end the other process"
    )
