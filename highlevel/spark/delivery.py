"""Results on their way to Kafka while Spark goes on: a batch is written beside the work on the next one.

What is on its way lies in the folder of parcels, with a note that names them and the batch's token, from before Spark
commits the batch until the transaction is committed. So nothing hangs on this process: after one that was killed, the
next one first writes what is noted, unless Kafka's token says that it has been written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from highlevel.spark.errors import CheckpointRefused
from highlevel.spark.parcels import Parcels
from highlevel.spark.sink import TransactionalSink
from lowmark.wire.sinktoken import Token

__all__ = ["Delivery"]

_NOTE = "pending.json"


class Delivery:
    """At most one batch is on its way. The sink is open, and stays the caller's to close."""

    def __init__(self, folder: Path, sink: TransactionalSink) -> None:
        self._parcels = Parcels(folder)
        self._note = folder / _NOTE
        self._sink = sink
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="delivery")
        self._under_way: Future[None] | None = None

    def catch_up(self, checkpoint: str) -> None:
        """Write what a former process on this checkpoint has noted and not written; the folder is empty then.
        CheckpointRefused when it cannot be read."""
        noted, written = self._noted(), self._sink.token
        # Batch 0 is never noted, so that a token of the checkpoint stands before anything is.
        if noted is not None and written is not None and noted[0].checkpoint == written.checkpoint == checkpoint:
            token, parcels = noted
            if written.batch < token.batch:
                try:
                    self._sink.write(self._parcels.bundles(parcels), token)
                except (OSError, pa.ArrowException) as error:
                    raise self._damaged(error) from None
        self._parcels.clear()

    def hand_over(self, token: Token, parcels: Sequence[str], then: Callable[[BaseException | None], None]) -> None:
        """Begin to write a batch: it will be visible, whatever happens. Waits for the one before it, and raises why
        that could not be written. `then` is called when it is visible, or with the reason why not, by any thread."""
        self.wait()
        if parcels and token.batch > 0:
            self._write_note(token, parcels)
        self._under_way = self._thread.submit(self._deliver, token, parcels)
        self._under_way.add_done_callback(lambda delivered: then(delivered.exception()))
        if token.batch == 0:
            self.wait()

    def discard(self, parcels: Sequence[str]) -> None:
        """Of a batch that has been written before."""
        self._parcels.remove(parcels)

    @property
    def idle(self) -> bool:
        return self._under_way is None or self._under_way.done()

    def wait(self, within_s: float | None = None) -> None:
        """Until nothing is on its way. TimeoutError; or why a batch could not be written."""
        if self._under_way is not None:
            self._under_way.result(within_s)

    def close(self) -> None:
        """What is on its way stays noted, if it has not arrived."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, token: Token, parcels: Sequence[str]) -> None:
        if parcels or token.batch == 0:  # which leaves a token in any case: without one, later batches are refused
            self._sink.write(self._parcels.bundles(parcels), token)
            self._note.unlink(missing_ok=True)
            self._parcels.remove(parcels)

    def _write_note(self, token: Token, parcels: Sequence[str]) -> None:
        staged = self._note.with_suffix(".new")
        form = {"job": token.job, "checkpoint": token.checkpoint, "run": token.run, "batch": token.batch}
        staged.write_text(json.dumps({"token": form, "parcels": list(parcels)}))
        os.replace(staged, self._note)

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
