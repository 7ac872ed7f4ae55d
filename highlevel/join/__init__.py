"""Window joins above Kafka: match rows of several inputs, in whatever order they arrive."""

from highlevel.join.join import JoinOperator
from highlevel.join.outer import OuterJoinOperator

__all__ = ["JoinOperator", "OuterJoinOperator"]
