"""Aggregation above Kafka: partials merge into windows, windows become rows."""

from highlevel.aggregate.aggregate import AggregateOperator
from highlevel.aggregate.crowded import CrowdedAggregateOperator
from highlevel.aggregate.distinct import DistinctOperator
from highlevel.aggregate.finish import FinishOperator
from highlevel.aggregate.gather import GatherOperator, SendOperator, TotalsOperator
from highlevel.aggregate.number import NumberOperator
from highlevel.aggregate.partitionedrows import PartitionedRowsOperator
from highlevel.aggregate.reduce import ReduceOperator
from highlevel.aggregate.slidebytuple import SlideByTupleOperator

__all__ = [
    "AggregateOperator", "CrowdedAggregateOperator", "DistinctOperator", "FinishOperator", "GatherOperator",
    "NumberOperator", "PartitionedRowsOperator", "ReduceOperator", "SendOperator", "SlideByTupleOperator",
    "TotalsOperator",
]  # fmt: skip
