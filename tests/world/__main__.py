"""`python -m tests.world SEED`: what happens in the world of a seed, step by step, with as few events as still fail."""

from __future__ import annotations

import argparse
import sys

from tests.world.schedule import schedule, with_changes
from tests.world.shrink import shrunk
from tests.world.simulation import run


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    options.add_argument("seed", type=int)
    options.add_argument("--whole", action="store_true", help="leave no event out")
    options.add_argument("--changes", action="store_true", help="the text of the query changes, too")
    asked = options.parse_args()
    outcome = run(asked.seed, changes=asked.changes)
    if outcome.wrong and not asked.whole:
        events = (with_changes if asked.changes else schedule)(asked.seed)
        events = shrunk(events, lambda fewer: bool(run(asked.seed, fewer, asked.changes).wrong))
        outcome = run(asked.seed, events, asked.changes)
    print(*outcome.story, sep="\n")
    print(*outcome.wrong or ["nothing is wrong"], sep="\n")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
