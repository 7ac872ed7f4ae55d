"""The memory model of window-oblivious joins: by hand, and theorem 3.1 against joins of random streams."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lowmark.query.optimize.buffer_model import Buffering, JoinTree, Traits, buffers, choose, joined, tree_buffers
from tests.join.scrambled import Arrival, arrivals, keys_of, multiplicity, results, scrambling


def test_synchronized_inputs() -> None:
    """Equation 6: own scrambling, and what comes while the other's tuples are late."""
    assert buffers([Traits(50, 10), Traits(100, 40)]) == (10 + 20, 40 + 20)


def test_lags() -> None:
    """Equation 7, with an input 2 s ahead; the other one needs the least there is."""
    assert buffers([Traits(50, 10, ahead=2), Traits(100, 40)]) == (30 + 100, 1)
    assert buffers([Traits(50, 10), Traits(100, 40)], [[0, 7], [-70, 0]]) == (37, 1)


def test_the_most_demanding_of_several_inputs_counts() -> None:
    """Equation 8."""
    assert buffers([Traits(10, 1), Traits(10, 5), Traits(10, 30, ahead=-1)]) == (41, 45, 25)


def test_strategies() -> None:
    """Section 4."""
    inputs = [Traits(50, 100, 2, ahead=10), Traits(50, 200, 3)]
    assert buffers(inputs) == (100 + 200 + 500, 1)
    assert buffers(inputs, strategy=Buffering.DISK, reserve=20) == (100 + 200 + 20, 1)
    assert buffers(inputs, strategy=Buffering.SORT) == (100 + 2 + 3 + 500, 200 + 1)
    assert buffers(inputs, strategy=Buffering.HYBRID, reserve=20) == (100 + 2 + 3 + 20, 200 + 1)


def test_the_strategy_with_the_least_delay_that_fits() -> None:
    inputs = [Traits(50, 100, 2, ahead=10), Traits(50, 200, 3)]
    sizes = (24, 24)
    fitting = {bound: choose(inputs, sizes, bound, reserve=20) for bound in (None, 801 * 24, 800 * 24, 320 * 24, 240)}
    assert list(fitting.values()) == [Buffering.KEEP, Buffering.KEEP, Buffering.DISK, None, None]
    assert choose(inputs, sizes, 321 * 24, reserve=20) is Buffering.DISK
    narrow = [Traits(50, 100, ahead=10), Traits(50, 2000)]
    needs = {way: sum(buffers(narrow, None, way, 0)) for way in Buffering}
    assert choose(narrow, sizes, needs[Buffering.HYBRID] * 24, reserve=0) is Buffering.HYBRID


def test_what_a_join_emits() -> None:
    """Equations 9 and 10."""
    made = joined([Traits(10, 5, 2, 3.0), Traits(20, 7, 3, 1.0)])
    assert made == Traits(10 * 3 + 20 * 2, 5 * 3 + 7 * 2, 6, 1.0)


def test_a_tree() -> None:
    """Query 2 of the paper: only the most lagging inputs below a join make a lag above it."""
    inner = JoinTree((Traits(50, 10, ahead=-4), Traits(50, 20), Traits(50, 30)))
    other = JoinTree((Traits(50, 10), Traits(50, 20), Traits(50, 30)))
    *below, top = tree_buffers(JoinTree((inner, other)))
    assert below == [(1, 230, 230 + 10), (40, 50, 50)]
    assert top == (1, 60 + 60 + 4 * 150)
    assert tree_buffers(JoinTree((inner, other)), Buffering.SORT)[-1] == (1, 1 + 1 + 600)


@given(events=st.integers(2, 3).flatmap(lambda inputs: st.tuples(st.just(inputs), arrivals(inputs, 14))))
def test_theorem_3_1_bounds_the_scrambling_of_a_join(events: tuple[int, list[Arrival]]) -> None:
    inputs, came = events
    streams = [keys_of(came, port) for port in range(inputs)]
    found = [streams[0][places[0]] for places in results(came, inputs)]
    bound = joined([Traits(1, scrambling(keys), multiplicity(keys)) for keys in streams])
    assert scrambling(found) <= bound.scrambling
    assert multiplicity(found) <= bound.multiplicity
