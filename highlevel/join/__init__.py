"""Window joins above Kafka: match rows of several inputs that arrive in any order."""

from highlevel.join.join import JoinOperator
from highlevel.join.outer import OuterJoinOperator

__all__ = ["JoinOperator", "OuterJoinOperator"]
