"""Where Spark spends the time of its micro-batches, from the report that it makes of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from highlevel.metrics import BatchPhase

__all__ = ["phases_of"]

_PHASES: Final = {
    "latestOffset": BatchPhase.LATEST_OFFSET,
    "getBatch": BatchPhase.PLAN,
    "queryPlanning": BatchPhase.PLAN,
    "walCommit": BatchPhase.WAL_COMMIT,
    "addBatch": BatchPhase.ADD_BATCH,
    "commitBatch": BatchPhase.COMMIT_OFFSETS,
    "commitOffsets": BatchPhase.COMMIT_OFFSETS,
}
_WHOLE = "triggerExecution"


def phases_of(durations_ms: Mapping[str, int]) -> dict[BatchPhase, float]:
    """Seconds by phase. What Spark reports under other names, or not at all, is `OTHER`."""
    spent = dict.fromkeys(BatchPhase, 0.0)
    for name, phase in _PHASES.items():
        spent[phase] += durations_ms.get(name, 0) / 1000
    spent[BatchPhase.OTHER] = max(0.0, durations_ms.get(_WHOLE, 0) / 1000 - sum(spent.values()))
    return spent
