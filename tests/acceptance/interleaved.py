"""A query above the kernels, in any interleaving and any cut, against the naive evaluator."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from lowmark.query.options import Late, Strategy
from lowmark.wire.records.verdicts import Reason
from tests.acceptance.bucketrun import Ran, Streams, run
from tests.acceptance.traffic import Traffic
from tests.naive.compare import differences, wrong_orders
from tests.naive.evaluate import is_ordered, may_concern_nobody, rows_of
from tests.naive.frames import frame
from tests.naive.overflow import noted
from tests.naive.packets import decode_frames

__all__ = ["check", "packets_of"]


def packets_of(sent: Traffic) -> Streams:
    return {
        name: [decode_frames(name, rank, map(frame, specs))[0] for rank, specs in enumerate(sources)]
        for name, sources in sent.sources.items()
    }


def check(
    text: str, sent: Traffic, seed: int, buckets: int, strategy: Strategy = Strategy.AUTO, late: Late = Late.COUNT
) -> Ran:  # fmt: skip
    """All chances of the run are taken from the seed. AssertionError: tells the query, the traffic and both."""
    streams = packets_of(sent)
    ran = run(text, streams, Random(seed), buckets, strategy=strategy, late=late)
    with noted() as overflows:
        expected = rows_of(text, streams)
    wrong = differences(ran.rows, expected)
    if not wrong and is_ordered(text):
        wrong = wrong_orders(ran.rows, expected)
    said = "\n".join((text, str(sent), f"seed {seed}, {buckets} buckets", *wrong))
    assert not wrong, said
    assert (ran.unfinished, ran.broken) == (0, 0)
    reasons = {reason for completes in ran.completes for complete in completes for reason in complete.verdict.reasons}
    if overflows or may_concern_nobody(text):
        assert reasons <= {Reason.OVERFLOW, Reason.NUMBERING}, (said, reasons)
    else:
        assert not reasons, (said, reasons)
    assert Reason.OVERFLOW in reasons or not overflows or may_concern_nobody(text), said
    for completes in ran.completes:
        assert all(complete.merged == complete.promised for complete in completes if complete.windows), text
        for before, after in pairwise(completes):
            if before.windows is None or after.windows is None:
                assert before.end < after.end
            else:
                assert after.windows.first == before.windows.to + 1
    return ran
