"""Builds the operator of each step."""

from __future__ import annotations

from collections.abc import Callable

from highlevel.interface import Operator
from highlevel.join import JoinOperator, OuterJoinOperator
from highlevel.join.in_order import InOrderJoinOperator
from highlevel.join.oblivious.oblivious_join import ObliviousJoinOperator
from highlevel.join.punctuated import PunctuatedJoinOperator
from highlevel.limits import GroupLimit
from highlevel.operators.aggregate import AggregateOperator
from highlevel.operators.crowded_aggregate import CrowdedAggregateOperator
from highlevel.operators.distinct import DistinctOperator
from highlevel.operators.finish import FinishOperator
from highlevel.operators.gather import GatherOperator, SendOperator, TotalsOperator
from highlevel.operators.reduce import ReduceOperator
from highlevel.operators.row_windows.number import NumberOperator
from highlevel.operators.row_windows.partitioned_rows import PartitionedRowsOperator
from highlevel.operators.row_windows.slide_by_tuple import SlideByTupleOperator
from lowmark.query.options import Strategy
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.joins import Oblivious, Punctuated
from lowmark.query.plan.nodes import (
    Aggregate,
    Counted,
    Finish,
    Gather,
    Join,
    Number,
    Reduce,
    Send,
    StepPlan,
    Totals,
)

__all__ = ["Build", "build"]

Build = Callable[[StepPlan, GroupLimit], Operator]


def build(plan: StepPlan, limit: GroupLimit | None = None) -> Operator:
    """The operator of a step. `limit`: groups that it may keep for ever; None: limited by memory alone."""
    match plan:
        case Aggregate(at_once=True):
            return DistinctOperator(plan)
        case Aggregate():
            in_crowds = plan.crowded and plan.strategy is Strategy.PANED and not plan.closes
            return CrowdedAggregateOperator(plan) if in_crowds else AggregateOperator(plan, limit)
        case Finish():
            return FinishOperator(plan)
        case Gather():
            return GatherOperator(plan)
        case Totals():
            return TotalsOperator(plan)
        case Send():
            return SendOperator()
        case Join(kind=JoinKind.INNER, oblivious=Oblivious()):
            return ObliviousJoinOperator(plan)
        case Join(kind=JoinKind.INNER, in_order=None, punctuated=Punctuated()):
            return PunctuatedJoinOperator(plan)
        case Join(kind=JoinKind.INNER, in_order=None):
            return JoinOperator(plan)
        case Join(kind=JoinKind.INNER):
            return InOrderJoinOperator(plan)
        case Join():
            return OuterJoinOperator(plan)
        case Number():
            return NumberOperator(plan)
        case Reduce():
            return ReduceOperator(plan)
        case Counted(slides=None):
            return PartitionedRowsOperator(plan, limit)
        case Counted():
            return SlideByTupleOperator(plan, limit)
