"""Late rows, corrections and amendments as lines: one JSON object each, under the name of its kind."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from lowmark.query.options import Late
from lowmark.wire.records.record import RecordKind
from lowmark.wire.records.verdicts import Amendment, Correction, LateRow

__all__ = ["LateNews", "TellLate", "line_of"]

LateNews = LateRow | Correction | Amendment

_KINDS = {LateRow: RecordKind.LATE, Correction: RecordKind.CORRECTION, Amendment: RecordKind.AMENDMENT}


def line_of(news: LateNews) -> str:
    """`{"correction": …}`: the value of the record on its topic, under the name of its kind."""
    from lowmark.wire.records.codec import encode  # slow to load, and most queries have no late packets

    return f'{{"{_KINDS[type(news)].value}":{encode(news).value.decode()}}}'


class TellLate:
    """Writes the lines of `lowmark query --late` to standard error. With `count` it writes nothing: the audit has the
    count."""

    def __init__(self, late: Late, names: Mapping[str, str]) -> None:
        """`names`: shown names of columns that have another one."""
        self._late = late
        self._names = names

    def __call__(self, news: LateNews) -> None:
        if self._late is not Late.COUNT:
            shown = news if isinstance(news, Amendment) else news.renamed(self._names)
            sys.stderr.write(line_of(shown) + "\n")
