"""Which results a new generation can recognise, by the input alone, as already written.

Windows over time are recognised by their times, whatever else has changed. All other results (rows and groups without
windows, windows over rows, slide-by-tuple) are recognised by how far the partials had been read when they were written.
That works while equal partials give equal results: with the same plan and sources, and read from their beginning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from highlevel.progress.promises.reach import numbering
from highlevel.verdicts.loss_routes import answer_step
from lowmark.query.plan.nodes import QueryPlan, Stage
from lowmark.wire.records.json_fields import Json, canonical
from lowmark.wire.records.registration import SourceKind

__all__ = ["Replay", "replays"]


@dataclass(frozen=True, slots=True)
class Replay:
    """A query whose results are not recognised by their times."""

    stage: Stage
    law: str | None  # a digest of all inputs of the results besides partials; None: their order depends on chance


def replays(
    plans: Iterable[QueryPlan], digests: Mapping[str, str], roster: Mapping[str, tuple[str, ...]],
    kinds: Mapping[str, SourceKind],
) -> dict[str, Replay]:  # fmt: skip
    """By query. `digests` are of the plans, `roster` has the sources of each stream, `kinds` their known kinds."""
    return {
        plan.name: Replay(plan.stage, None if plan.exchanges else _law(plan.stage, digests[plan.name], roster, kinds))
        for plan in plans
        if answer_step(plan) is None or numbering(plan) is not None
    }


def _law(
    stage: Stage, digest: str, roster: Mapping[str, tuple[str, ...]], kinds: Mapping[str, SourceKind]
) -> str:  # fmt: skip
    streams = sorted({stream for node in stage.nodes for stream in node.streams})
    sources: list[Json] = [
        [stream, [[source, kinds.get(source, SourceKind.LIVE).value] for source in sorted(roster[stream])]]
        for stream in streams
    ]
    return hashlib.sha256(canonical([digest, sources])).hexdigest()[:16]
