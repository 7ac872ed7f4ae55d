"""Aggregation above Kafka: partials merge into windows, windows become rows."""

from highlevel.aggregate.aggregate import AggregateOperator
from highlevel.aggregate.finish import FinishOperator
from highlevel.aggregate.number import NumberOperator
from highlevel.aggregate.reduce import ReduceOperator

__all__ = ["AggregateOperator", "FinishOperator", "NumberOperator", "ReduceOperator"]
