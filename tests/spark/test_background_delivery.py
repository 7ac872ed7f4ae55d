"""Results that are under way when a process is killed, against a real broker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from highlevel.spark.errors import CheckpointRefused, TakenOver
from highlevel.spark.sink.background_delivery import Delivery
from highlevel.spark.sink.messages import Bundle, Position
from highlevel.spark.sink.result_files import ParcelWriter
from highlevel.spark.sink.transaction import TransactionalSink
from tests.spark.place import Place

pytestmark = pytest.mark.slow


class Killed(Exception):
    """Stands for the end of the process: nothing that it has begun goes on."""


def parcel(folder: Path, *bundles: Bundle, position: Position | None = None) -> str:
    writer = ParcelWriter(folder)
    for bundle in bundles:
        writer.put(bundle)
    name = writer.close(position)
    assert name is not None
    return name


def deliver(delivery: Delivery, place: Place, batch: int, parcels: list[str]) -> BaseException | None:
    """What was heard of it at its end."""
    heard: list[BaseException | None] = []
    told = threading.Event()

    def then(error: BaseException | None) -> None:
        heard.append(error)
        told.set()

    delivery.hand_over(place.token(batch), parcels, then)
    assert told.wait(60)
    return heard[0]


def first_batch(place: Place, folder: Path, sink: TransactionalSink) -> Delivery:
    delivery = Delivery(folder, sink)
    delivery.catch_up("checkpoint")
    assert deliver(delivery, place, 0, [parcel(folder, place.rows([b"0"]))]) is None
    return delivery


def killed_while_writing(sink: TransactionalSink, monkeypatch: pytest.MonkeyPatch, after_commit: bool) -> None:
    """The next transaction."""
    ask = sink._ask

    def deadly(call: Callable[..., object], *arguments: object) -> object:
        if call.__name__ != "commit_transaction":
            return ask(call, *arguments)
        if after_commit:
            ask(call, *arguments)
        raise Killed

    monkeypatch.setattr(sink, "_ask", deadly)


def test_batches_become_visible_in_their_order_and_leave_nothing(place: Place, tmp_path: Path) -> None:
    with place.sink() as sink:
        delivery = first_batch(place, tmp_path, sink)
        for batch in range(1, 4):
            assert deliver(delivery, place, batch, [parcel(tmp_path, place.rows([str(batch).encode()]))]) is None
        assert deliver(delivery, place, 4, []) is None
        delivery.wait()
        assert sink.token == place.token(3)
    assert [value for _, value in place.read()] == [b"0", b"1", b"2", b"3"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("after_commit", [False, True])
def test_what_was_under_way_is_visible_once(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_commit: bool
) -> None:
    with place.sink() as sink:
        delivery = first_batch(place, tmp_path, sink)
        killed_while_writing(sink, monkeypatch, after_commit)
        one = parcel(tmp_path, place.rows([b"1"]), position=place.position(5))
        parcels = [one, parcel(tmp_path, place.rows([b"2"], partition=1))]
        assert isinstance(deliver(delivery, place, 1, parcels), Killed)
        with pytest.raises(Killed):
            delivery.hand_over(place.token(2), [], lambda error: None)
    with place.sink() as sink:
        for _ in range(2):  # the second time there is nothing left to do
            Delivery(tmp_path, sink).catch_up("checkpoint")
            assert sink.token == place.token(1)
            assert sink.positions == {(place.results, 0): place.position(5)}
    assert sorted(value for _, value in place.read()) == [b"0", b"1", b"2"]
    assert list(tmp_path.iterdir()) == []


def test_another_checkpoint_does_not_write_what_is_under_way(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.sink() as sink:
        delivery = first_batch(place, tmp_path, sink)
        killed_while_writing(sink, monkeypatch, False)
        deliver(delivery, place, 1, [parcel(tmp_path, place.rows([b"1"]))])
    with place.sink() as sink:
        Delivery(tmp_path, sink).catch_up("another")
    assert [value for _, value in place.read()] == [b"0"]
    assert list(tmp_path.iterdir()) == []


def test_results_that_were_cut_are_refused(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.sink() as sink:
        delivery = first_batch(place, tmp_path, sink)
        killed_while_writing(sink, monkeypatch, False)
        name = parcel(tmp_path, place.rows([b"1"]))
        deliver(delivery, place, 1, [name])
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:100])
    with place.sink() as sink, pytest.raises(CheckpointRefused, match="cannot be read"):
        Delivery(tmp_path, sink).catch_up("checkpoint")
    assert (tmp_path / name).exists()


def test_a_process_that_was_taken_over_writes_nothing_more(place: Place, tmp_path: Path) -> None:
    with place.sink() as sink:
        delivery = first_batch(place, tmp_path, sink)
        with place.sink():
            assert isinstance(deliver(delivery, place, 1, [parcel(tmp_path, place.rows([b"1"]))]), TakenOver)
    assert [value for _, value in place.read()] == [b"0"]
