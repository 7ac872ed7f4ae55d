"""Window joins above Kafka: rows of several inputs meet, whatever the order in which they come."""

from highlevel.join.join import JoinOperator

__all__ = ["JoinOperator"]
