"""Which results are still to be written: the rule, and what it gives when runs end at any moment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highlevel.spark.errors import CheckpointRefused, TakenOver
from highlevel.spark.sink.tokens import Chain, Past, before_the_first, is_written, restated
from lowmark.wire.records.sink_token import Token, Told

PAST = before_the_first("cp")
START = restated(None, "job", "cp", 1)


def digest(before: str, *offsets: int) -> str:
    chain = Chain(before)
    for offset in offsets:
        chain.add("partials", offset, 1000 + offset)
    return chain.digest


def part(batch: int, number: int, told: str, last: bool = True, run: int = 1) -> Token:
    return Token(job="job", checkpoint="cp", run=run, batch=batch, part=number, last=last, digest=told)


def test_the_digest_is_of_all_input_in_its_order() -> None:
    one = digest(PAST.digest, 1, 2, 3)
    assert one == digest(PAST.digest, 1, 2, 3)
    others = [digest(PAST.digest, 1, 2), digest(PAST.digest, 1, 3, 2), digest("else", 1, 2, 3), PAST.digest]
    assert len({one, *others}) == 5
    again = Chain(PAST.digest)
    again.add("partials", 1, 7)  # in a topic that was made anew
    assert again.digest != digest(PAST.digest, 1)


def test_a_part_is_written_once() -> None:
    told = digest(PAST.digest, 1)
    first, second = part(0, 0, told, last=False), part(0, 1, told)
    assert not is_written(START, PAST, first)
    assert is_written(first, PAST, first)
    assert not is_written(first, PAST, second)
    assert all(is_written(second, PAST, each) for each in (first, second))
    # A batch that is there whole is not written again, in however many parts it would come now.
    assert is_written(second, PAST, part(0, 2, told))


def test_the_rest_of_a_batch_is_not_written_with_other_queries() -> None:
    told = digest(PAST.digest, 1)
    first, rest = (replace(part(0, number, told, last=number > 0), queries="a") for number in range(2))
    assert not is_written(first, PAST, rest)
    with pytest.raises(CheckpointRefused, match=r"part of the results of batch 0 is written, with other queries"):
        is_written(first, PAST, replace(rest, queries="b"))
    assert is_written(rest, PAST, replace(rest, queries="b")), "it is there whole"


def test_what_is_there_from_other_input_is_refused() -> None:
    stored = part(3, 0, digest(PAST.digest, 1))
    past = PAST.after(stored.digest, stored, "p")
    for batch in (3, 2):
        with pytest.raises(CheckpointRefused, match=r"older copy.*--new-generation"):
            is_written(stored, PAST, part(batch, 0, digest(PAST.digest, 2)))
    assert not is_written(stored, past, part(7, 0, digest(past.digest, 2)))
    # The state has seen more than Kafka has, less, or something else.
    for other in (replace(past, batch=4), replace(past, part=1), PAST, replace(past, written="x")):
        with pytest.raises(CheckpointRefused, match="do not belong together at batch 7"):
            is_written(stored, other, part(7, 0, "d"))
    with pytest.raises(CheckpointRefused, match="do not belong together"):
        is_written(replace(stored, last=False), past, part(7, 0, "d"))


def test_another_run_and_another_checkpoint_have_taken_over() -> None:
    for stored in (replace(START, run=2), replace(START, checkpoint="other")):
        with pytest.raises(TakenOver, match="another process runs job job"):
            is_written(stored, PAST, part(0, 0, "d"))
    with pytest.raises(CheckpointRefused, match="Kafka does not say"):
        is_written(None, PAST, part(0, 0, "d"))


def test_a_claim_keeps_what_is_written() -> None:
    stored = replace(part(3, 1, "d"), read=9, told={"q": Told("law", 9)})
    assert restated(stored, "job", "cp", 5) == replace(stored, run=5)
    anew = restated(stored, "new", "cp2", 1)
    assert (anew.batch, anew.run, anew.read, anew.told) == (-1, 1, 9, stored.told)
    assert not is_written(anew, before_the_first("cp2"), replace(part(0, 0, "x"), checkpoint="cp2", job="new"))


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
def test_every_part_once_wherever_runs_end(batches: list[tuple[int, int, bool]]) -> None:
    """By batch: its parts, before which of them the run ends (if it has so many), and whether it also ends after them,
    before Spark commits the state."""
    kafka: list[tuple[int, int]] = []
    token, past = START, PAST
    for number, (parts, ends, lost) in enumerate(batches):
        told = digest(past.digest, number)
        for attempt in range(3):
            after = past
            for at in range(parts):
                if attempt == 0 and at == ends:
                    break
                each = part(number, at, told, last=at == parts - 1)
                if not is_written(token, past, each):
                    kafka.append((number, at))
                    token = each
            else:
                after = past.after(told, token, "p")
                if not (lost and attempt == 1):
                    past = after
                    break
    assert kafka == [(number, at) for number, (parts, _, _) in enumerate(batches) for at in range(parts)]


@given(st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_a_state_that_was_rolled_back_is_refused(seen: int, back: int, replanned: bool) -> None:
    """Never are results swallowed: the run goes on from where it was, or is refused."""
    token, past, states = START, PAST, [PAST]
    for number in range(seen + 1):
        told = digest(past.digest, number)
        token = part(number, 0, told)
        past = past.after(told, token, "p")
        states.append(past)
    back = min(back, seen + 1)
    again = part(back, 0, digest(states[back].digest, back + 100 * replanned))
    if back == seen + 1:
        assert not is_written(token, states[back], again)
    elif back == seen and not replanned:
        assert is_written(token, states[back], again)
    else:
        with pytest.raises(CheckpointRefused):
            is_written(token, states[back], again)


def test_the_past_is_kept_in_the_state() -> None:
    past = PAST.after("d", part(3, 1, "e"), "me")
    assert Past.decode(past.encode()) == past
