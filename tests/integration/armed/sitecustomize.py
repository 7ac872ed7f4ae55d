"""Kills a job around the commit of a bucket's transaction. Spark's workers import this when they start, by PYTHONPATH:
TEST_DIE is `before:N` or `after:N`, with the N-th commit of all workers; TEST_JOB is the driver's process.
With TEST_PART a batch is cut into parts of so many bytes."""

import os
import signal
from pathlib import Path


def _arm(die, counted):
    from highlevel.spark.sink.transaction import Transactions

    moment, _, number = die.partition(":")
    ask = Transactions._ask

    def deadly(self, call, *arguments):
        job = int(os.environ.get("TEST_JOB") or os.getpid())
        if getattr(call, "__name__", "") != "commit_transaction" or job == os.getpid():
            return ask(self, call, *arguments)
        with counted.open("a") as file:  # appends are whole, also of several processes
            file.write(".")
        now = counted.stat().st_size == int(number)
        answer = None if now and moment == "before" else ask(self, call, *arguments)
        if now:
            os.kill(job, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    Transactions._ask = deadly


if os.environ.get("TEST_PART"):
    from highlevel.spark.sink import outgoing

    outgoing._PART_BYTES = int(os.environ["TEST_PART"])
    outgoing._MOST_BYTES = 4 * outgoing._PART_BYTES

if os.environ.get("TEST_DIE"):
    _arm(os.environ["TEST_DIE"], Path(os.environ["TEST_COUNT"]))
