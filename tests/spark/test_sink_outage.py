"""The sink of a bucket when its broker is killed inside a transaction, and comes back."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from highlevel.spark.sink.transaction import Transactions
from lowmark.app.kafka.broker import Broker
from tests.spark.place import Place
from tests.spark.test_bucket_sink import NEW, run

pytestmark = pytest.mark.slow


def test_a_broker_is_killed_inside_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the rows are sent, and when the commit was not heard of: each batch is visible once. A broker that goes
    between the rows and the token makes the client hang (its issue 5456): the worker ends itself then."""
    broker = Broker(tmp_path / "broker")
    broker.start()
    try:
        port = int(broker.bootstrap.rpartition(":")[2])
        place = Place(broker.bootstrap)
        place.claim()
        sink = place.sink()
        past = run(place, sink, 0, NEW, place.rows([b"0"]))
        ask = Transactions._ask
        moment = ["", 0]

        def interrupted(self: Transactions, call, *arguments):  # type: ignore[no-untyped-def]
            nonlocal broker
            if call.__name__ != moment[0]:
                return ask(self, call, *arguments)
            name, moment[0] = moment[0], ""
            if moment[1]:
                ask(self, call, *arguments)
            os.kill(broker.pid, signal.SIGKILL)
            broker.stop()
            broker = Broker(tmp_path / "broker", port)
            broker.start()
            return None if moment[1] and name else ask(self, call, *arguments)

        monkeypatch.setattr(Transactions, "_ask", interrupted)
        for number, at in enumerate((("flush", 0), ("commit_transaction", 1)), 1):
            moment[:] = at
            past = run(place, sink, number, past, place.rows([b"%d" % number]), place.position(number))
            assert moment[0] == ""
        run(place, place.sink(), 3, past, place.rows([b"3"]))
        assert [value for _, value in place.read()] == [b"0", b"1", b"2", b"3"]
    finally:
        broker.stop()
