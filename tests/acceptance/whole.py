"""A query through the whole command, against the naive evaluator."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import strategies as st

from tests.acceptance.command import query
from tests.acceptance.traffic import Traffic, cut
from tests.naive.compare import differences, wrong_orders
from tests.naive.evaluate import answer, is_ordered, may_concern_nobody

__all__ = ["check_command", "options"]


@st.composite
def options(draw: st.DrawFn, sent: Traffic) -> list[str]:
    """Ways to run a query that change no row."""
    disorders = ["scan", "scan", "within 10 minutes", "within 1000 tuples"]
    slots = draw(st.sampled_from((1, 2, 4, 8, 64, 1024, 1 << 17)))
    flush = draw(st.sampled_from((["slow"], ["slow", "--flush-every", "3"], ["lazy"], ["full"])))
    panes = draw(st.sampled_from((1, 2, 3)))
    disorder = draw(st.sampled_from([*disorders, "ordered"] if sent.disorder_s == 0 else disorders))
    return ["--table", str(slots), "--flush", *flush, "--flush-panes", str(panes), "--disorder", disorder]


def check_command(text: str, sent: Traffic, chosen: list[str], damaged: bool = False) -> None:
    said = f"{text}\n{sent}\n{' '.join(chosen)}"
    with tempfile.TemporaryDirectory() as folder:
        captures = sent.write(Path(folder))
        if damaged:
            cut(captures[0][1])
        expected = answer(text, captures)
        outcome = query(text, captures, *chosen)
    code = 3 if not expected.whole else 4 if expected.overflow else 0
    assert outcome.code == code or (code == 4 and outcome.code == 0 and may_concern_nobody(text)), (
        f"{said}\n{outcome.error}"
    )
    wrong = differences(outcome.rows, expected.rows)
    if not wrong and is_ordered(text):
        wrong = wrong_orders(outcome.rows, expected.rows)
    assert not wrong, "\n".join((said, *wrong))
