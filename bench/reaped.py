"""`python -m bench.reaped FIGURES COMMAND…`: run a command and tell what it and all its descendants took.

A process of its own, because it adopts and waits for whatever the command leaves behind, which is counted too.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def main(figures: str, *command: str) -> int:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    began = time.monotonic()
    status = subprocess.Popen(command).wait()
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    usage = {
        "cpu_s": used.ru_utime + used.ru_stime,
        "wall_s": time.monotonic() - began,
        "peak_bytes": used.ru_maxrss * 1024,
    }
    Path(figures).write_text(json.dumps(usage))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
