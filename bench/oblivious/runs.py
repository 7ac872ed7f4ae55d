"""Runs of the two queries of Wu et al. over scrambled streams: Query 1 joins S1 to S3; Query 2 joins the results of S1
to S3 (S7) with those of S4 to S6 (S8).

What is admitted when, what is observed and how large buffers are to be is the product's; rows are matched by
`bench.baselines.buffered_join`, whose buffers are cut to that size after each batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise, product
from time import perf_counter_ns

import numpy as np

from bench.baselines.buffered_join import BufferedJoin, Places
from bench.oblivious.scrambled_streams import Change, Stream, scrambled_stream
from highlevel.interface import Words
from highlevel.join.oblivious.admission import Admission, InputRows
from highlevel.join.oblivious.disk_buffer import DiskRoom
from highlevel.join.oblivious.memory_policy import MemoryPolicy
from highlevel.state import MemoryState
from lowmark.query.expr.evaluate import Ints
from lowmark.query.optimize.buffer_model import Buffering, joined
from lowmark.wire.rows.values import FOREVER

__all__ = [
    "ROW_BYTES",
    "Known",
    "ObliviousJoin",
    "Run",
    "Setting",
    "Tells",
    "WindowJoin",
    "batches",
    "possible",
    "rates_of",
    "run_query",
    "streams_of",
]

ROW_BYTES = 24
"""Of a tuple: its key, its time, its number."""

_WORDS = ROW_BYTES // 8
_NS = 10**9


@dataclass(frozen=True, slots=True)
class Setting:
    """`batch`: seconds of arrivals that are taken together; 0: tuple by tuple. Of 120 seconds, an input is congested
    from the 10th to the 40th, and another one has a burst from the 80th to the 90th."""

    inputs: int = 3
    seconds: float = 120
    rate: float = 50
    most_scrambling: int = 500
    multiplicity: int = 2
    batch: float = 0.2


def streams_of(setting: Setting, seed: int) -> list[Stream]:
    """Query 1: S2 is congested, S3 has a burst. Query 2: S1 to S3 are congested, so that S7 runs behind."""
    random = np.random.default_rng(seed)
    return [
        scrambled_stream(
            random, setting.seconds, setting.rate, int(random.integers(0, setting.most_scrambling + 1)),
            setting.multiplicity, _changes(setting, port),
        )
        for port in range(setting.inputs)
    ]  # fmt: skip


def rates_of(setting: Setting) -> list[list[tuple[float, float]]]:
    """Of each stream, since when it has how many tuples a second."""
    found = []
    for port in range(setting.inputs):
        rates = [(0.0, setting.rate)]
        for change in _changes(setting, port):
            rates += [(change.start, setting.rate * change.times), (change.end, setting.rate)]
        found.append(rates)
    return found


def _changes(setting: Setting, port: int) -> list[Change]:
    scale = setting.seconds / 120
    congested, burst = Change(10 * scale, 40 * scale, 1 / 8), Change(80 * scale, 90 * scale, 8)
    if setting.inputs > 3:
        return [congested] if port < 3 else []
    return [[], [congested], [burst]][port]


def possible(streams: Sequence[Stream]) -> int:
    """Results of the streams, of all inputs together."""
    last = max(int(stream.keys.max()) for stream in streams) + 1
    return int(np.prod([np.bincount(stream.keys, minlength=last) for stream in streams], axis=0).sum())


class Tells(Enum):
    COUNT = "those that came"
    RATE = "the generator's rate over this time"
    MOMENT = "the generator's rates at the moment"


class Known:
    """The buffers of one join by equations 7 and 8 with all parameters known: scrambling and lags are those of the
    whole streams. `tells`: which tuples of input i come in the time of which r_i k_j / r_j speaks."""

    def __init__(self, setting: Setting, streams: Sequence[Stream], tells: Tells) -> None:
        self._streams = streams
        self._ordered = [np.sort(stream.keys) for stream in streams]
        self._k = [stream.scrambling for stream in streams]
        self._rates = rates_of(setting)
        self._multiplicity = setting.multiplicity
        self._tells = tells

    def sizes(self, now: int) -> tuple[int, ...]:
        ports = range(len(self._streams))
        return tuple(max(self._size(at, of, now) for of in ports if of != at) for at in ports)

    def _size(self, at: int, of: int, now: int) -> int:
        own, other = self._streams[at], self._streams[of]
        arrived = int(np.searchsorted(own.times, now))
        place = int(np.searchsorted(other.times, now)) - self._k[of]
        if place < 1:
            return max(1, arrived)
        index = self._index(at, int(self._ordered[of][place - 1]))
        since = int(other.times[place - 1])
        before = int(np.searchsorted(own.times, since, "right"))
        if self._tells is Tells.COUNT:
            came = arrived - before
        elif self._tells is Tells.RATE:
            came = int(np.ceil(self._integral(at, now) - self._integral(at, since)))
        else:
            came = int(np.ceil(self._rate(at, now) * self._k[of] / self._rate(of, now)))
        return max(1, self._k[at] + came + before - index)

    def _index(self, port: int, key: int) -> int:
        """The virtual index of the last tuple whose key is at most this one, as if the stream went on."""
        ordered = self._ordered[port]
        if key > ordered[-1]:
            return (key + 1) * self._multiplicity
        return int(np.searchsorted(ordered, key, "right"))

    def _rate(self, port: int, now: int) -> float:
        return next(rate for since, rate in reversed(self._rates[port]) if now >= since * _NS)

    def _integral(self, port: int, now: int) -> float:
        """Tuples that the generator's rate makes up to now."""
        steps = [*self._rates[port], (np.inf, 0.0)]
        return sum(rate * max(0.0, min(end, now / _NS) - start) for (start, rate), (end, _) in pairwise(steps))


@dataclass(slots=True)
class Series:
    """Of one input, by second: the most tuples."""

    needed: Ints  # by results that came out of buffers without limits
    predicted: Ints
    used: Ints


@dataclass(slots=True)
class Run:
    """`inputs`: of each join, inner joins first. `latencies`: seconds, of results."""

    made: int
    possible: int
    inputs: list[list[Series]]
    memory: float  # tuples in all buffers, on the average
    latencies: list[float] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        return self.made / self.possible


class WindowJoin:
    """W-Join: buffers have the sizes that they are given. Results are those of rows as they come."""

    def __init__(self, inputs: int, windows: Sequence[int | None] | None = None, known: Known | None = None) -> None:
        self.join = BufferedJoin(inputs, windows)
        self._known = known
        self._times: list[list[int]] = [[] for _ in range(inputs)]
        self.sizes: tuple[int, ...] = tuple(window or 1 for window in windows or [1] * inputs)

    def take(self, port: int, rows: Words, now: int) -> Iterator[tuple[int, int]]:
        """The key of each result, and the time when the last tuple in it arrived."""
        yield from self._match(port, rows)
        if self._known is not None:
            self.sizes = self._known.sizes(now)
            self._cut()

    def held(self, port: int) -> int:
        """Tuples of an input in memory."""
        return self.join.kept(port)

    def _match(self, port: int, rows: Words) -> Iterator[tuple[int, int]]:
        for key, time, _ in rows.view(np.int64).tolist():
            self._times[port].append(time)
            places = self.join.add(port, key)
            if places is not None:
                for combination in product(*places):
                    yield key, max(self._times[of][place] for of, place in enumerate(combination))

    def _cut(self) -> None:
        for port, size in enumerate(self.sizes):
            self.join.keep(port, size)


class ObliviousJoin(WindowJoin):
    """The join without windows: buffers as the monitor finds them, rows admitted as the strategy has it."""

    def __init__(self, inputs: int, strategy: Buffering, room: DiskRoom | None) -> None:
        super().__init__(inputs)
        self._state = MemoryState()
        policy = MemoryPolicy((ROW_BYTES,) * inputs, forced=strategy)
        self.admission = Admission([InputRows(_WORDS, 0)] * inputs, policy, room)

    def take(self, port: int, rows: Words, now: int) -> Iterator[tuple[int, int]]:
        yield from self._admit(self.admission.arrive(port, rows, self._state))

    def end(self) -> Iterator[tuple[int, int]]:
        """The results of rows that wait."""
        for port in range(len(self.sizes)):
            yield from self._admit(self.admission.promise(port, FOREVER, self._state))

    def held(self, port: int) -> int:
        return self.join.kept(port) + self.admission.held(port, self._state) // ROW_BYTES

    def output_scrambling(self) -> int | None:
        """By theorem 3.1, once the inputs are known."""
        monitor = self.admission.monitor(self._state)
        if any(one.settled() is None for one in monitor.inputs):
            return None
        return joined(monitor.traits()).scrambling

    def expect(self, port: int, scrambling: int | None) -> None:
        """An input is the output of a join below."""
        if scrambling is not None:
            self.admission.monitor(self._state).inputs[port].order.given = scrambling

    def _admit(self, admitted: Iterator[tuple[int, Words]]) -> Iterator[tuple[int, int]]:
        for port, rows in admitted:
            yield from self._match(port, rows)
            monitor = self.admission.monitor(self._state)
            self.sizes = monitor.buffers()
            self._cut()
            monitor.forget()


class _Needs:
    """How large each buffer of a join would have to be for the results that come, if it is cut to no size: the paper's
    optimal buffer."""

    def __init__(self, inputs: int) -> None:
        self._join = BufferedJoin(inputs)
        self.most = [0] * inputs

    def take(self, port: int, keys: Sequence[int]) -> None:
        for key in keys:
            places: Places | None = self._join.add(port, key)
            if places is not None:
                for of, found in enumerate(places):
                    if of != port:
                        self.most[of] = max(self.most[of], self._join.arrived[of] - found[0])


class _Operator:
    """A join of a query, with what is noted of it."""

    def __init__(self, join: WindowJoin, inputs: int, seconds: float, *, backtracks: bool) -> None:
        self.join = join
        self._needs = _Needs(inputs) if backtracks else None
        self._seconds = int(np.ceil(seconds))
        self.series = [Series(*(np.zeros(self._seconds, np.int64) for _ in range(3))) for _ in range(inputs)]

    def take(self, port: int, rows: Words, now: int) -> list[tuple[int, int, int]]:
        """The key of each result, the time when the last tuple in it arrived, and the ns until it was put out."""
        if self._needs is not None:
            self._needs.take(port, rows[:, 0].view(np.int64).tolist())
        began = perf_counter_ns()
        return [(key, time, perf_counter_ns() - began) for key, time in self.join.take(port, rows, now)]

    def note(self, now: int) -> int:
        """Returns the tuples in memory."""
        second = min(now // _NS, self._seconds - 1)
        total = 0
        for port, one in enumerate(self.series):
            held = self.join.held(port)
            total += held
            one.predicted[second] = max(one.predicted[second], self.join.sizes[port])
            one.used[second] = max(one.used[second], held)
            if self._needs is not None:
                one.needed[second] = max(one.needed[second], self._needs.most[port])
                self._needs.most[port] = 0
        return total


def run_query(
    setting: Setting, streams: Sequence[Stream], joins: Sequence[WindowJoin], *, backtracks: bool = False
) -> Run:
    """`joins`: one for three streams, three for six. Tuple by tuple, time is that of a virtual clock, on which work
    takes what it takes here."""
    tree = len(streams) > 3
    operators = [
        _Operator(join, 2 if at == 2 else 3, setting.seconds, backtracks=backtracks) for at, join in enumerate(joins)
    ]
    made, clock, memory, latencies = 0, 0, 0.0, []
    steps = 0
    for port, rows, until in _arrivals(setting, streams):
        clock = max(clock, until)
        began = perf_counter_ns()
        found = operators[port // 3].take(port % 3, rows, until)
        if tree and found:
            top, below = operators[2], joins[port // 3]
            if isinstance(below, ObliviousJoin) and isinstance(top.join, ObliviousJoin):
                top.join.expect(port // 3, below.output_scrambling())
            found = top.take(port // 3, _rows_of(found), until)
        made += len(found)
        if not setting.batch:
            latencies += [(clock + spent - time) / _NS for _, time, spent in found]
            clock += perf_counter_ns() - began
        memory += sum(operator.note(until) for operator in operators)
        steps += 1
    made += _end(joins, tree)
    return Run(made, possible(streams), [operator.series for operator in operators], memory / steps, latencies)


def _end(joins: Sequence[WindowJoin], tree: bool) -> int:
    """The results of what still waits."""
    left = 0
    for at, join in enumerate(joins):
        if isinstance(join, ObliviousJoin):
            found = list(join.end())
            if tree and at < 2 and found:
                found = list(joins[2].take(at, _rows_of(found), FOREVER))
            left += len(found)
    return left


def _arrivals(setting: Setting, streams: Sequence[Stream]) -> Iterator[tuple[int, Words, int]]:
    """An input, its rows, and the time when they are all there."""
    if setting.batch:
        for port, which, until in batches(setting, streams):
            yield port, _words(streams[port], which), until
        return
    events = sorted(
        (int(time), port, at) for port, stream in enumerate(streams) for at, time in enumerate(stream.times)
    )
    for time, port, at in events:
        yield port, _words(streams[port], slice(at, at + 1)), time


def batches(setting: Setting, streams: Sequence[Stream]) -> Iterator[tuple[int, slice, int]]:
    """An input, which of its tuples come together, and the time when they are all there."""
    step = int(setting.batch * _NS)
    for until in range(step, int(setting.seconds * _NS) + step, step):
        for port, stream in enumerate(streams):
            low, high = np.searchsorted(stream.times, (until - step, until)).tolist()
            if high > low:
                yield port, slice(low, high), until


def _words(stream: Stream, which: slice) -> Words:
    keys, times = stream.keys[which], stream.times[which]
    return np.column_stack((keys, times, np.arange(which.start, which.stop))).view(np.uint64)


def _rows_of(found: Sequence[tuple[int, ...]]) -> Words:
    rows = np.zeros((len(found), _WORDS), np.int64)
    rows[:, :2] = [each[:2] for each in found]
    return rows.view(np.uint64)
