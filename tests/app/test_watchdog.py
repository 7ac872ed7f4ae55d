"""What does not come to an end in its time ends the process, with its reason."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from lowmark.watchdog import Watchdog


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_call_that_never_returns_is_told_once_its_time_is_over() -> None:
    clock, reasons = Clock(), list[str]()
    watchdog = Watchdog(reasons.append, clock)
    begun, never = threading.Event(), threading.Event()

    def call() -> None:
        with watchdog.within(60, "the call of nobody"):
            begun.set()
            never.wait()

    threading.Thread(target=call, daemon=True).start()
    assert begun.wait(30)
    clock.now_s += 60
    watchdog.look()
    assert reasons == []
    assert watchdog.slow(59) == "the call of nobody, for 60 s"
    clock.now_s += 0.1
    watchdog.look()
    assert reasons == ["the call of nobody took longer than 60 s"]
    never.set()


def test_what_has_come_to_an_end_is_forgotten() -> None:
    clock, reasons = Clock(), list[str]()
    watchdog = Watchdog(reasons.append, clock)
    with watchdog.within(10, "a"):
        with watchdog.within(1, "b"):
            clock.now_s += 1
        assert watchdog.slow(0) == "a, for 1 s"
        clock.now_s += 9
        watchdog.look()
    clock.now_s += 100
    watchdog.look()
    assert (reasons, watchdog.slow(0)) == ([], None)
    watchdog.begin(5, "the end")
    clock.now_s += 6
    watchdog.look()
    assert reasons == ["the end took longer than 5 s"]


HANGING = """\
import ctypes, os, sys
from lowmark.watchdog import Watchdog

def end(reason):
    print(reason, flush=True)
    os._exit(7)

with Watchdog(end) as watchdog, watchdog.within(0.1, "a pause that nothing ends"):
    while True:
        ctypes.CDLL(None).pause()  # as a C library does: the main thread does not hear a signal
"""


def test_its_thread_ends_a_process_whose_main_thread_hangs() -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (7, "a pause that nothing ends took longer than 0 s\n")
    assert time.monotonic() - began >= 0.1
