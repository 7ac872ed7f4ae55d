"""The forms in which rows are written."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Format"]


class Format(StrEnum):
    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
