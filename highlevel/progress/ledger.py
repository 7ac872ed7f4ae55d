"""The ledger of a node in one bucket: for each granule, the tuples that each lane promised and those merged.

An open granule has an entry for each lane with content there. When the frontier passes it, the entries are *settled*:
totals remain, and every mismatch becomes a mark. Granules are stored in chunks, one state piece each; a granule without
content has no entry.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from highlevel.interface import Space, State
from highlevel.progress.granules import ROW_NUMBER
from highlevel.progress.lanes import Lane, Lanes
from highlevel.progress.promises.frontier import Frontier
from highlevel.rosters.roster import Member
from highlevel.verdicts.marks import EXACT, Finding, Mark, MarkRow, Marks
from lowmark.query.plan.nodes import Node
from lowmark.wire.records.punctuations import Account
from lowmark.wire.records.verdicts import Reason, Verdict
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Ledger", "account_reasons"]

_CHUNK = 64


def account_reasons(account: Account) -> frozenset[Reason]:
    """The reasons that the sender's counts give against a granule."""
    counts = ((account.late, Reason.LATE), (account.given_up, Reason.GIVEN_UP))
    return frozenset(reason for count, reason in counts if count)


@dataclass(slots=True)
class _Entry:
    """One lane's content of one open granule. `here` is the sender's final count, None until it has promised."""

    merged: int = 0
    everywhere: int = 0
    here: int | None = None
    late: int = 0
    reasons: frozenset[Reason] = frozenset()


@dataclass(slots=True)
class _Chunk:
    entries: dict[tuple[int, str, int], _Entry] = field(default_factory=dict)  # by granule, source, epoch
    settled: dict[int, tuple[int, int, bool]] = field(default_factory=dict)
    """By granule: merged, promised, and whether any bucket has tuples of it."""

    def encode(self) -> bytes:
        entries = [
            [*key, e.merged, e.everywhere, e.here, e.late, sorted(r.value for r in e.reasons)]
            for key, e in self.entries.items()
        ]
        settled = [[granule, *totals] for granule, totals in self.settled.items()]
        return json.dumps([entries, settled], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, piece: bytes) -> _Chunk:
        entries, settled = json.loads(piece)
        return cls(
            {
                (granule, source, epoch): _Entry(merged, everywhere, here, late, frozenset(map(Reason, reasons)))
                for granule, source, epoch, merged, everywhere, here, late, reasons in entries
            },
            {granule: (merged, promised, anywhere) for granule, merged, promised, anywhere in settled},
        )


@dataclass(slots=True)
class _Summary:
    """State of a node's ledger beyond single granules. `low` and `high` are the first and last granule that ever held a
    tuple, merged or only promised, in any bucket. `told` is the greatest promise of any lane except its last one.
    `began` is the least first promise; with it all buckets begin and end with the same windows. No window needs a
    granule below `needed`."""

    frontier: int = NEVER
    low: int | None = None
    high: int | None = None
    told: int = NEVER
    began: int | None = None
    needed: int = NEVER
    marks: list[MarkRow] = field(default_factory=list)

    def encode(self) -> bytes:
        fields = [self.frontier, self.low, self.high, self.told, self.began, self.needed, self.marks]
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, piece: bytes) -> _Summary:
        return cls(*json.loads(piece))


class Ledger:
    """Ledger and frontier of one node. `returns`: its sources are buckets, which send the same promises to every
    bucket, at different times."""

    def __init__(self, node: Node, state: State, returns: bool = False) -> None:
        self.node = node
        self.returns = returns
        self._state = state
        self._chunks: Space[_Chunk] = Space(f"ledger.{node.name}", _Chunk.encode, _Chunk.decode)
        self._summaries: Space[_Summary] = Space(f"frontier.{node.name}", _Summary.encode, _Summary.decode)
        summary = state.get(self._summaries, 0) or _Summary()
        self.frontier = Frontier(summary.frontier)
        self.low, self.high, self.told, self._began = summary.low, summary.high, summary.told, summary.began
        self._needed = summary.needed
        self.marks = Marks.of_rows(summary.marks)

    @property
    def seen(self) -> int:
        """The value of the panes' attribute below which everything that has ended lies, and every tuple that has come
        into any bucket."""
        frontier = NEVER if self.frontier.value == FOREVER else self.frontier.value
        granule = frontier if self.high is None else max(frontier, self.high + 1)
        return NEVER if granule == NEVER else self.node.reduction.pane.start(granule)

    def save(self) -> None:
        self._state.put(self._summaries, 0, self._summary())

    def _summary(self) -> _Summary:
        marks = self.marks.rows()
        return _Summary(self.frontier.value, self.low, self.high, self.told, self._began, self._needed, marks)

    def promised(self, lane: Lane, granule: int) -> None:
        """Note that the lane promises the granules below this one."""
        if granule < FOREVER:
            self.told = max(self.told, granule)
        if lane.promised == NEVER:
            self._began = granule if self._began is None else min(self._began, granule)

    def begins(self, front: int) -> int:
        """The granule from which windows are announced, if `front` is the first frontier."""
        return self._began if self.returns and self._began is not None else front

    def merged(self, lane: Lane, granule: int, tuples: int) -> None:
        """Count merged tuples of an open granule."""
        self._touch(granule, lane).merged += tuples
        self._content(granule, tuples)

    def account(self, lane: Lane, account: Account) -> None:
        """Take the sender's final account of a granule that this promise closes and that is still open here."""
        entry = self._touch(account.granule, lane)
        entry.here = (entry.here or 0) + account.here
        entry.everywhere += account.everywhere
        self._supplement(entry, account)
        self._content(account.granule, account.everywhere)

    def supplement(self, lane: Lane, account: Account, reasons: frozenset[Reason]) -> None:
        """Take losses of an open granule that became known outside the promise that closes it; they add no tuples."""
        entry = self._touch(account.granule, lane)
        self._supplement(entry, account)
        entry.reasons |= reasons

    def taint(self, start: int, stop: int, found: Finding) -> None:
        """Mark the granules from `start` up to `stop`, if a window may need one of them. While nothing is promised,
        late tuples may be in any granule. If rows are numbered, a loss makes all later numbers wrong."""
        if found.verdict == EXACT.verdict or start >= stop:
            return
        if stop > self._needed:
            self.marks.add(Mark(start, stop, found.verdict, found.dropped, found.late))
        if found.verdict.reasons and self.node.reduction.pane.attribute == ROW_NUMBER:
            self.marks.add(Mark(start, FOREVER, Verdict(frozenset({Reason.NUMBERING}))))

    def end_epoch(self, lane: Lane, reason: Reason) -> None:
        """End the lane's epoch, because a later one has begun: granules without its final promise are lossy."""
        for key, chunk in self._open_chunks(FOREVER):
            for (_, source, epoch), entry in chunk.entries.items():
                if (source, epoch) == (lane.source, lane.epoch) and entry.here is None:
                    entry.here = entry.merged
                    entry.reasons |= {reason}
                    self._state.put(self._chunks, key, chunk)

    def unlist(self, source: str, start: int, reason: Reason) -> None:
        """Stop counting the source in open granules from `start` on: those that hold tuples of it are lossy."""
        for key, chunk in self._open_chunks(FOREVER):
            names = [name for name in chunk.entries if name[0] >= start and name[1] == source]
            for name in names:
                entry = chunk.entries[name]
                if entry.merged:
                    entry.here = entry.merged
                    entry.reasons |= {reason}
                else:
                    del chunk.entries[name]
            if names:
                self._state.put(self._chunks, key, chunk)

    def unaccounted(self, lane: Lane, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The runs of granules from `start` up to `stop` for which the lane gave no account."""
        for key, chunk in self._open_chunks(stop):
            if (key + 1) * _CHUNK <= start:
                continue
            known = sorted(
                granule
                for (granule, source, epoch), entry in chunk.entries.items()
                if (source, epoch) == (lane.source, lane.epoch) and entry.here is not None and start <= granule < stop
            )
            for granule in known:
                if start < granule:
                    yield start, granule
                start = granule + 1
        if start < stop:
            yield start, stop

    def settle(self, start: int, stop: int, lanes: Lanes, members: tuple[Member, ...]) -> None:
        """Settle the granules from `start` up to `stop`, which the frontier has passed."""
        excluded = Verdict(frozenset({Reason.EXCLUDED}))
        for member in members:
            missing = max(start, lanes.promised(member.source, self.node.name))
            for first, end in member.excluded:
                self.taint(max(first, missing, member.joined), min(end, stop, member.left), Finding(excluded))
        for key, chunk in self._open_chunks(stop, start):
            ended = sorted(name for name in chunk.entries if name[0] < stop)
            for name in ended:
                self._settle_entry(chunk, name, lanes)
            if ended:
                self._state.put(self._chunks, key, chunk)

    def finding(self, extent: range, holds: Callable[[int], bool] = lambda granule: True) -> Finding:
        """What is known about an extent's settled granules; counts only tuples of those that `holds` names."""
        found = self.marks.finding(extent.start, extent.stop)
        merged = promised = 0
        for key in self._keys(extent.start, extent.stop):
            chunk = self._chunk(key)
            for granule, totals in chunk.settled.items():
                if granule in extent and holds(granule):
                    merged += totals[0]
                    promised += totals[1]
        return Finding(found.verdict, merged, promised, found.dropped, found.late)

    def held(self, start: int, stop: int) -> list[int]:
        """The settled granules from `start` up to `stop` that have tuples in some bucket, ascending."""
        found = (self._chunk(key).settled.items() for key in self._keys(start, stop))
        return sorted(
            granule for settled in found for granule, (_, _, held) in settled if held and start <= granule < stop
        )

    def reach(self) -> int | None:
        """The last granule that has a tuple or in which a mark begins or ends."""
        return max((high for high in (self.high, self.marks.high()) if high is not None), default=None)

    def prune(self, below: int) -> None:
        """Drop all granules below this one, because no window needs them."""
        below = self._needed = min(below, self.frontier.value)
        for key in self._state.keys(self._chunks, below // _CHUNK):
            self._state.drop(self._chunks, key)
        self.marks.prune(below)

    def content(self, below: int) -> Iterator[range]:
        """Runs of granules from the frontier up to `below` outside of which there is no content; loads no piece."""
        for key in self._keys(self.frontier.value, below):
            yield range(max(key * _CHUNK, self.frontier.value), min((key + 1) * _CHUNK, below))

    def _settle_entry(self, chunk: _Chunk, name: tuple[int, str, int], lanes: Lanes) -> None:
        granule, source, epoch = name
        entry = chunk.entries.pop(name)
        lane = lanes.find(source, self.node.name)
        current = lane is not None and lane.epoch == epoch
        reasons = entry.reasons
        if entry.here is None and entry.merged:
            covered = not current or lane is None or lane.promised > granule
            reasons |= {Reason.GAP if covered else Reason.EXCLUDED}
        elif entry.here is not None and entry.here != entry.merged:
            reasons |= {Reason.FUTURE if current and lane is not None and lane.future else Reason.GAP}
        if reasons:
            self.taint(granule, granule + 1, Finding(Verdict(reasons), late=entry.late))
        merged, promised, anywhere = chunk.settled.get(granule, (0, 0, False))
        here = entry.merged if entry.here is None else entry.here
        anywhere |= entry.everywhere > 0 or entry.merged > 0
        chunk.settled[granule] = merged + entry.merged, promised + here, anywhere

    @staticmethod
    def _supplement(entry: _Entry, account: Account) -> None:
        entry.late += account.late
        entry.reasons |= account_reasons(account)

    def _content(self, granule: int, tuples: int) -> None:
        if tuples:
            self.low = granule if self.low is None else min(self.low, granule)
            self.high = granule if self.high is None else max(self.high, granule)

    def _touch(self, granule: int, lane: Lane) -> _Entry:
        key = granule // _CHUNK
        chunk = self._state.get(self._chunks, key) or _Chunk()
        self._state.put(self._chunks, key, chunk)
        return chunk.entries.setdefault((granule, lane.source, lane.epoch), _Entry())

    def _chunk(self, key: int) -> _Chunk:
        chunk = self._state.get(self._chunks, key)
        assert chunk is not None, "a listed piece is there"
        return chunk

    def _keys(self, start: int, stop: int) -> list[int]:
        keys = self._state.keys(self._chunks, (stop - 1) // _CHUNK + 1)
        return list(keys[bisect_left(keys, start // _CHUNK) :])

    def _open_chunks(self, stop: int, start: int | None = None) -> Iterator[tuple[int, _Chunk]]:
        """Chunks that may have entries of granules below `stop`: entries lie at or above the frontier."""
        for key in self._keys(self.frontier.value if start is None else start, stop):
            yield key, self._chunk(key)
