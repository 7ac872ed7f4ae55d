"""Joins of the same inputs with different windows, in one execution (Hammad 2003)."""

from highlevel.join.shared.shared_join import SharedJoinOperator

__all__ = ["SharedJoinOperator"]
