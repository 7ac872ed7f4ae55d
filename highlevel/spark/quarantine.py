"""Which queries are quarantined together: they stop, and the others of the job go on.

The micro-batch in which an operator failed is undone. It is run again, and all after it, without the queries that read
the operator: the others find their state as it was. What the quarantined ones have stored stays as it is, and is not
read again: only a new generation, which reads again what Kafka still has, lets them go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.plan.shared_joins import shares

__all__ = ["RELEASE", "together"]

RELEASE = (
    "See to the reason (a limit, or another version of lowmark), and start the job once with --new-generation: that "
    "releases it, and it goes on where it stopped, from what Kafka still has"
)


def together(plans: Sequence[QueryPlan], failed: Collection[str]) -> frozenset[str]:
    """The queries that stop with those that have failed: joins that run as one have one state, which is theirs all."""
    stopped = set(failed)
    groups = [set[str]().union(*share.queries) for stage in _by_stage(plans) for share in shares(stage)]
    while more := [group for group in groups if group & stopped and not group <= stopped]:
        stopped.update(*more)
    return frozenset(stopped)


def _by_stage(plans: Iterable[QueryPlan]) -> list[list[QueryPlan]]:
    stages: dict[str, list[QueryPlan]] = {}
    for plan in sorted(plans, key=lambda plan: plan.name):
        stages.setdefault(plan.stage.fingerprint, []).append(plan)
    return list(stages.values())
