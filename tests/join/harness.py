"""Joins of small random inputs, and the nested loops that say what they must give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
from hypothesis import strategies as st

from highlevel.interface import Operator, Out, State, Words
from highlevel.join import JoinOperator, OuterJoinOperator
from highlevel.join.oblivious.oblivious_join import ObliviousJoinOperator
from highlevel.join.punctuated import PunctuatedJoinOperator
from lowmark.query.expr.expressions import Call, Field, Named, Op
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.joins import Oblivious
from lowmark.query.plan.nodes import AT, Extreme, Join, JoinInput, Probe, has_every_row
from lowmark.wire.records.partials import PANE, TUPLES
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.values import FOREVER
from lowmark.wire.rows.words import column_of
from tests.wire.strategies import V4, V6

UNIT = 4
"""Times of a pane."""

AnyJoin = JoinOperator | OuterJoinOperator | PunctuatedJoinOperator

OUTER = (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL, JoinKind.SEMI, JoinKind.ANTI)

NAN = float("nan")
ADDRESSES = (V4 + 1, V6 + 1, V6 + (0xFFFF << 32) + 1, V6 + (1 << 64) + 1)
INPUT = Schema(
    (
        Column(PANE, Kind.INT), Column(TUPLES, Kind.INT), Column("t", Kind.TIME), Column("id", Kind.INT),
        Column("a", Kind.INT, nullable=True), Column("f", Kind.FLOAT), Column("ip", Kind.IP),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Tuple:
    """`number` tells it from all others of its input; `a` may be null, `f` NaN."""

    t: int
    number: int
    a: int | None
    f: float
    ip: int


@dataclass(frozen=True)
class Event:
    """Tuples of a port; or, without tuples, its promise: no later one before pane `ended`."""

    port: int
    tuples: tuple[Tuple, ...] = ()
    ended: int = 0


@dataclass(frozen=True)
class Scene:
    plan: Join
    events: tuple[Event, ...]
    saved: tuple[bool, ...]  # after each event, whether the state goes through bytes

    def tuples(self, port: int) -> list[Tuple]:
        return [row for event in self.events if event.port == port for row in event.tuples]


def plan_of(
    sizes: Sequence[int], tumbling: bool, equal: Sequence[tuple[str | None, ...]], residual: bool,
    kind: JoinKind = JoinKind.INNER, orders: Sequence[Sequence[int]] = (), extremes: Sequence[Extreme] = (),
    windowless: bool = False,
) -> Join:  # fmt: skip
    """`windowless`: the windows, which are tumbling, follow from an equality of times. `orders`:
    in which a new row of each input meets the others; without, that of the inputs."""
    ports = range(len(sizes))
    chosen = orders or [[other for other in ports if other != port] for port in ports]
    probes = tuple(Probe(tuple(order), (0.0,) * len(order), 0.0, False) for order in chosen)
    inputs = tuple(
        JoinInput(
            f"i{n}", INPUT, "t", UNIT, size, tuple((name, f"i{n}.{name}") for name in ("t", "id", "a")),
            (Named(f"i{n}.t", Field(AT, Kind.TIME)),) if has_every_row(kind, n) else (),
        )
        for n, size in enumerate(sizes)
    )  # fmt: skip
    columns = ((n, column) for n in range(len(sizes)) for column in INPUT.columns[2:5])
    output = Schema(
        (
            *(Column(f"i{n}.{c.name}", c.kind, c.nullable or not has_every_row(kind, n)) for n, c in columns),
            *(Column(extreme.name, Kind.TIME) for extreme in extremes),
        )
    )
    ids = [Field(f"i{n}.id", Kind.INT) for n in (0, len(sizes) - 1)]
    where = Call(Op.NE, (ids[0], ids[1]), Kind.BOOL, False) if residual else None
    return Join(
        inputs, tumbling, tuple(equal), where, output, kind, windowless=windowless, probes=probes,
        extremes=tuple(extremes),
    )  # fmt: skip


@st.composite
def scenes(
    draw: st.DrawFn, kinds_of_join: tuple[JoinKind, ...] = (JoinKind.INNER,), counts: tuple[int, ...] = (2, 3, 3, 4),
    oblivious: bool = False,
) -> Scene:  # fmt: skip
    """`counts`: of the inputs of inner joins; others have two. `oblivious`: all are window-oblivious."""
    kind_of_join = draw(st.sampled_from(kinds_of_join))
    count = draw(st.sampled_from(counts)) if kind_of_join is JoinKind.INNER else 2
    tumbling = oblivious or draw(st.booleans())
    size = st.integers(1, 30)
    windowless = oblivious or (tumbling and draw(st.booleans()))
    if windowless:
        sizes = (draw(st.sampled_from((1, 1, 1, 3, 4, 7, 30))),) * count
    else:
        sizes = (draw(size),) * count if tumbling else tuple(draw(size) for _ in range(count))
    column = st.sampled_from(("a", "f", "ip", None)) if count > 2 else st.sampled_from(("a", "f", "ip"))
    kinds = draw(st.lists(st.sampled_from(("a", "f", "ip")), max_size=2, unique=True))
    equal = []
    for kind in kinds:
        columns = tuple(kind if draw(column) is not None else None for _ in range(count))
        if sum(name is not None for name in columns) > 1:
            equal.append(columns)
    if windowless and sizes[0] == 1:
        equal.append(("t",) * count)
    orders = [draw(st.permutations([n for n in range(count) if n != port])) for port in range(count)]
    extremes = draw(_extremes(count)) if kind_of_join is JoinKind.INNER else ()
    plan = plan_of(sizes, tumbling, equal, draw(st.booleans()), kind_of_join, orders, extremes, windowless)
    if oblivious or (windowless and kind_of_join is JoinKind.INNER and draw(st.booleans())):
        plan = replace(plan, oblivious=Oblivious())
    made = draw(events(count))
    return Scene(plan, made, tuple(draw(st.booleans()) for _ in made))


@st.composite
def _extremes(draw: st.DrawFn, count: int) -> tuple[Extreme, ...]:
    some = st.lists(st.sampled_from([f"i{n}.t" for n in range(count)]), min_size=2, unique=True).map(tuple)
    made = draw(st.lists(st.tuples(st.booleans(), some), max_size=2))
    return tuple(Extreme(f"extreme {n}", greatest, of) for n, (greatest, of) in enumerate(made))


@st.composite
def events(draw: st.DrawFn, count: int) -> tuple[Event, ...]:
    fronts = [-30] * count  # panes that have ended
    numbers = Counter[int]()
    made = []
    for _ in range(draw(st.integers(1, 14))):
        port = draw(st.integers(0, count - 1))
        if draw(st.integers(0, 2)) == 0:
            fronts[port] += draw(st.integers(1, 8))
            made.append(Event(port, ended=fronts[port]))
            continue
        rows = []
        for _ in range(draw(st.integers(1, 6))):
            t = fronts[port] * UNIT + draw(st.integers(0, 60))
            a = draw(st.sampled_from((None, 0, 1, 1, 2)))
            f = draw(st.sampled_from((0.0, -0.0, 1.5, NAN)))
            rows.append(Tuple(t, numbers[port], a, f, draw(st.sampled_from(ADDRESSES))))
            numbers[port] += 1
        made.append(Event(port, tuple(rows)))
    ends = draw(st.permutations(range(count)))
    made += [Event(port, ended=FOREVER) for port in ends]
    return tuple(made)


def operator_of(plan: Join) -> AnyJoin:
    if plan.oblivious is not None:
        return ObliviousJoinOperator(plan)
    return JoinOperator(plan) if plan.kind is JoinKind.INNER else OuterJoinOperator(plan)


def words(rows: Sequence[Tuple]) -> Words:
    matrix = np.zeros((len(rows), INPUT.words), np.uint64)
    for line, row in zip(matrix, rows, strict=True):
        line[0] = np.uint64(1 << INPUT.index("a") if row.a is None else 0)
        ints = (row.t // UNIT, 1, row.t, row.number, row.a or 0)
        line[1:6] = np.array(ints, np.int64).view(np.uint64)
        line[6] = np.float64(row.f).view(np.uint64)
        line[7:10] = (row.ip >> 128, row.ip >> 64 & 2**64 - 1, row.ip & 2**64 - 1)
    return matrix


def send(operator: Operator, event: Event, state: State, sink: Out) -> None:
    if event.tuples:
        operator.on_batch(event.port, words(event.tuples), state, sink)
    else:
        operator.on_promise(event.port, Promise((Bound(PANE, event.ended),), event.ended == FOREVER), state, sink)


def in_windows(plan: Join, times: Sequence[int]) -> bool:
    """By the definition."""
    if plan.tumbling:
        return len({t // port.size for t, port in zip(times, plan.inputs, strict=True)}) == 1
    sizes = [port.size for port in plan.inputs]
    return all(times[i] - sizes[j] <= times[j] < times[i] + sizes[i] for j in range(len(sizes)) for i in range(j))


def agree(plan: Join, rows: Sequence[Tuple]) -> bool:
    for columns in plan.equal:
        values = [getattr(row, name) for row, name in zip(rows, columns, strict=True) if name is not None]
        if any(value is None or value != values[0] for value in values):
            return False
    return plan.where is None or rows[0].number != rows[-1].number


def nested_loops(scene: Scene) -> Counter[tuple[int | None, ...]]:
    """The numbers of the tuples of each row, None where an input has none."""
    pairs = _pairs(scene)
    lefts, rights = ({pair[n] for pair in pairs} for n in (0, -1))
    alone = [(row.number, None) for row in scene.tuples(0) if row.number not in lefts]
    match scene.plan.kind:
        case JoinKind.INNER:
            return pairs
        case JoinKind.SEMI:
            return Counter((number, None) for number in lefts)
        case JoinKind.ANTI:
            return Counter(alone)
    found = pairs + Counter(alone if scene.plan.kind is not JoinKind.RIGHT else [])
    if scene.plan.kind is not JoinKind.LEFT:
        found += Counter((None, row.number) for row in scene.tuples(1) if row.number not in rights)
    return found


def _pairs(scene: Scene) -> Counter[tuple[int | None, ...]]:
    found: Counter[tuple[int | None, ...]] = Counter()
    for rows in product(*(scene.tuples(port) for port in range(len(scene.plan.inputs)))):
        if in_windows(scene.plan, [row.t for row in rows]) and agree(scene.plan, rows):
            found[tuple(row.number for row in rows)] += 1
    return found


def numbers(plan: Join, matrices: Sequence[Words]) -> Iterator[tuple[int | None, ...]]:
    return _values(plan, matrices, "id")


def times(plan: Join, matrices: Sequence[Words]) -> Iterator[tuple[int | None, ...]]:
    return _values(plan, matrices, "t")


def extremes(plan: Join, matrices: Sequence[Words]) -> Iterator[tuple[int | None, ...]]:
    """Of each row, in the order of the plan."""
    return _columns(plan, matrices, [extreme.name for extreme in plan.extremes])


def _values(plan: Join, matrices: Sequence[Words], name: str) -> Iterator[tuple[int | None, ...]]:
    return _columns(plan, matrices, [f"i{n}.{name}" for n in range(len(plan.inputs))])


def _columns(plan: Join, matrices: Sequence[Words], names: Sequence[str]) -> Iterator[tuple[int | None, ...]]:
    for matrix in matrices:
        columns = []
        for name in names:
            data, valid = column_of(plan.output, matrix, name)
            columns.append(
                [value if there else None for value, there in zip(data.tolist(), valid.tolist(), strict=True)]
            )
        yield from zip(*columns, strict=True)


def matches_something(scene: Scene, port: int, row: Tuple) -> bool:
    """Null and NaN equal nothing."""
    asked = [getattr(row, name) for columns in scene.plan.equal if (name := columns[port]) is not None]
    return all(value is not None and value == value for value in asked)


@cache
def band(sizes: tuple[int, int], tumbling: bool, t: int, first: bool) -> range:
    """The times of an input whose rows meet a row of the other one, which is the `first` of the two or the second."""
    pair = plan_of(sizes, tumbling, (), False)
    reach = max(70, 2 * max(sizes))
    near = [at for at in range(t - reach, t + reach) if in_windows(pair, [t, at] if first else [at, t])]
    return range(near[0], near[-1] + 1)


def partners(scene: Scene, port: int, t: int, other: int) -> range:
    sizes = [plan.size for plan in scene.plan.inputs]
    first, second = sorted((port, other))
    return band((sizes[first], sizes[second]), scene.plan.tumbling, t, port < other)


def kept(operator: AnyJoin, state: State, port: int) -> list[int]:
    """Times of the rows that the operator keeps of a port."""
    return [t for _, times in kept_bins(operator, state, port) for t in times]


def kept_bins(operator: AnyJoin, state: State, port: int) -> Iterator[tuple[int, list[int]]]:
    """The same by the keys of their bins."""
    space = operator.rows_of(port)
    for key in state.keys(space):
        piece = state.get(space, key)
        assert piece is not None
        yield key, piece.times.tolist()
