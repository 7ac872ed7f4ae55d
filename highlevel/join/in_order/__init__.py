"""Window joins whose rows come out in order of time (Hammad 2005)."""

from highlevel.join.in_order.in_order_join import InOrderJoinOperator

__all__ = ["InOrderJoinOperator"]
