"""The window join that also uses promises about values (Ding 2004)."""

from highlevel.join.punctuated.punctuated_join import FreedRows, PunctuatedJoinOperator

__all__ = ["FreedRows", "PunctuatedJoinOperator"]
