"""Delivers results to Kafka while Spark goes on: a batch is written during the work on the next one.

Before Spark commits a batch, its parcels and a note that names them and the batch's token are in the folder of parcels;
they stay until the transaction is committed. So nothing depends on this process: after a kill, or a crash of the
machine, the next process first writes what is noted, unless Kafka's token says that it was written.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa

from highlevel.spark.checkpoint import sync
from highlevel.spark.errors import CheckpointRefused
from highlevel.spark.sink.result_files import Parcels
from highlevel.spark.sink.transaction import TransactionalSink
from lowmark.wire.records.sink_token import Token

__all__ = ["Delivery"]

_NOTE = "pending.json"


Then = Callable[[BaseException | None], None]


class Delivery:
    """Writes at most one batch at a time, in a thread of its own. Only this thread calls Kafka's client, so no other
    thread can hang there, and no signal has to wait for it. The caller opens and closes the sink."""

    def __init__(self, folder: Path, sink: TransactionalSink) -> None:
        self._parcels = Parcels(folder)
        self._note = folder / _NOTE
        self._sink = sink
        self._turn = threading.Lock()  # guards the handover of work to the thread
        self._under_way: Future[None] | None = None

    def catch_up(self, checkpoint: str) -> None:
        """Write what a former process on this checkpoint has noted and not written; afterwards the folder is empty.
        Raises CheckpointRefused when the note cannot be read."""
        noted, written = self._noted(), self._sink.token
        # Batch 0 is never noted, so that Kafka has a token of the checkpoint before any note exists.
        if noted is not None and written is not None and noted[0].checkpoint == written.checkpoint == checkpoint:
            token, parcels = noted
            if written.batch < token.batch:
                self._begin(lambda: self._sink.write(self._parcels.bundles(parcels), token))
                try:
                    self.wait()
                except (OSError, pa.ArrowException) as error:
                    raise self._damaged(error) from None
        self._parcels.clear()

    def hand_over(self, token: Token, parcels: Sequence[str], then: Then) -> None:
        """Begin to write a batch: it will become visible, whatever happens. Waits for the batch before it, and raises
        why that could not be written. When it is visible, any thread calls `then`; also on failure, with the reason."""
        with self._turn:
            self.wait()
            if parcels and token.batch > 0:
                self._write_note(token, parcels)
            self._begin(lambda: self._deliver(token, parcels), then)
        if token.batch == 0:
            self.wait()

    def renew(self, then: Then) -> None:
        """Call this now and then: the sink renews its token when that is due and no batch is being written. Never
        waits."""
        if self._sink.renewal_due and self._turn.acquire(blocking=False):
            try:
                if self.idle:
                    self._begin(self._sink.renew, then)
            finally:
                self._turn.release()

    def discard(self, parcels: Sequence[str]) -> None:
        """Remove the parcels of a batch that was written before."""
        self._parcels.remove(parcels)

    @property
    def idle(self) -> bool:
        return self._under_way is None or self._under_way.done()

    def wait(self, within_s: float | None = None) -> None:
        """Wait until no batch is being written. Raises TimeoutError, or why a batch could not be written."""
        if self._under_way is not None:
            self._under_way.result(within_s)

    def _begin(self, work: Callable[[], None], then: Then = lambda error: None) -> None:
        future: Future[None] = Future()
        future.add_done_callback(lambda done: then(done.exception()))

        def run() -> None:
            try:
                work()
            except BaseException as error:  # whatever it is, the waiting caller gets it
                future.set_exception(error)
            else:
                future.set_result(None)

        self._under_way = future
        # The end of the process does not wait for it: undelivered results stay noted.
        threading.Thread(target=run, name="delivery", daemon=True).start()

    def _deliver(self, token: Token, parcels: Sequence[str]) -> None:
        if parcels or token.batch == 0:  # batch 0 always leaves a token: without one, later batches are refused
            self._sink.write(self._parcels.bundles(parcels), token)
            self._note.unlink(missing_ok=True)
            self._parcels.remove(parcels)

    def _write_note(self, token: Token, parcels: Sequence[str]) -> None:
        """Durable on return, as the parcels are: Spark commits the batch after this."""
        staged = self._note.with_suffix(".new")
        form = {"job": token.job, "checkpoint": token.checkpoint, "run": token.run, "batch": token.batch}
        staged.write_text(json.dumps({"token": form, "parcels": list(parcels)}))
        for file in (*(self._note.parent / name for name in parcels), staged):
            sync(file)
        os.replace(staged, self._note)
        sync(self._note.parent)

    def _noted(self) -> tuple[Token, list[str]] | None:
        try:
            form = json.loads(self._note.read_text())
            return Token(**form["token"]), form["parcels"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> CheckpointRefused:
        return CheckpointRefused(
            f"results that have not reached Kafka lie beside {self._note}, and cannot be read: {error}. Restore them, "
            "or begin a new generation with --new-generation"
        )
