"""The names of jobs: that of the configuration, and for a subset of its queries one of its own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

__all__ = ["job_name", "may_run"]

_NAME_LENGTH = 100
_HASH_LENGTH = 16
_HASH = re.compile(f"[0-9a-f]{{{_HASH_LENGTH}}}")


def job_name(name: str, queries: Sequence[str] | None) -> str:
    """A subset of the queries is a separate job, with its own checkpoint."""
    if queries is None:
        return name
    subset = "+".join(sorted(set(queries)))
    if len(subset) > _NAME_LENGTH:
        subset = hashlib.sha256(subset.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{name}.{subset}"


def may_run(job: str, name: str, query: str) -> bool:
    """Whether a job of this name may run the query of a configuration whose job is `name`: a hash does not tell."""
    if job == name:
        return True
    subset = job.removeprefix(f"{name}.")
    return subset != job and (query in subset.split("+") or _HASH.fullmatch(subset) is not None)
