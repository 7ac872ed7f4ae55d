"""What `explain` says of the choices that a plan made."""

from __future__ import annotations

from collections.abc import Iterator

from lowmark.query.plan import Aggregate, Counted, Join, Number
from lowmark.query.split import Halves
from lowmark.query.windows import WindowKind

__all__ = ["notes"]


def notes(halves: Halves, wanted: int) -> tuple[str, ...]:
    """Sentences, without a full stop. `wanted` is the number of buckets asked for."""
    return (*_buckets(halves, wanted), *_growth(halves))


def _buckets(halves: Halves, wanted: int) -> Iterator[str]:
    if halves.reasons and wanted > 1:
        yield f"one bucket in place of {wanted}: {'; '.join(halves.reasons)}"


def _growth(halves: Halves) -> Iterator[str]:
    for step in halves.steps:
        match step.plan:
            case Aggregate(window=window, keys=keys) if window.kind is WindowKind.LANDMARK and keys:
                yield f"state grows with every new ({', '.join(keys)}): a landmark window forgets none"
            case Aggregate(details=details) if details:
                yield "state grows with the distinct values in a window: a holistic aggregate keeps a count of each"
            case Join(equal=()):
                yield "every row of one input meets all rows of the others in its window: the join has no equality"
            case Number(number="row_num"):
                yield "nothing is filtered below row_num: it numbers every packet of the stream"
            case Number():
                yield "tuples wait until all that arrived before them are known to be there"
            case Counted(partition=partition, slides=slides):
                if slides is not None:
                    yield "state grows with the different RATTR in a window: a bin for each, with its groups"
                if partition:
                    yield f"state grows with every new ({', '.join(partition)}): each goes on counting its tuples"
