"""Window joins above Kafka: rows of several inputs meet, whatever the order in which they come."""

from highlevel.join.join import JoinOperator
from highlevel.join.outer import OuterJoinOperator

__all__ = ["JoinOperator", "OuterJoinOperator"]
