"""All nodes on one source: takes blocks of frames, outputs partials, selected tuples and progress. Uses no clock."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from lowlevel.closed_connections import Watched, Watcher, kernel_reductions, watched, watched_by
from lowlevel.config import FlushOrder, LowLevelConfig
from lowlevel.kernel.cache import Kernel, kernel
from lowlevel.kernel.codegen.assemble import SECRETS, Build, SkipReason, fields_of
from lowlevel.kernel.inlined.community import SCHEDULE
from lowlevel.node_memory import NodeCounts, NodeMemory
from lowlevel.node_promises import NodeOutput, NodeProgress, SourceNode
from lowlevel.table_pressure import Pressure
from lowmark.jit.native_code import Laid
from lowmark.query.plan.nodes import Node
from lowmark.wire.frames import FUTURE_NS, Flaw, FrameBlock
from lowmark.wire.records.punctuations import Taint
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER, INT64_MIN
from lowmark.wire.rows.words import Words

__all__ = ["NodeOutput", "NodeProgress", "SourceNodes"]

_NO_TAGS = np.empty(0, np.int32)


class SourceNodes:
    """Inactive until `start()`. One thread must run the generators `take`, `heartbeat` and `finish` to their end."""

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        stream: str,
        rank: int = 0,
        config: LowLevelConfig | None = None,
        seed: int | None = None,
        build: Build = Build.FAST,
        send_late: Collection[str] = (),
    ) -> None:
        """`stream` is the tuples' `link`, `rank` their `_rank`. `seed` makes the tables' hash repeatable (None: it is
        random, because strangers may choose the packets). `send_late`: nodes that output their late tuples."""
        if not nodes:
            raise ValueError("a source without nodes has nothing to do")
        self._nodes = tuple(nodes)
        self._stream = stream
        self._rank = rank
        self._config = config or LowLevelConfig()
        self._build = build
        self._send_late = frozenset(send_late)
        self._secrets = _secrets(seed)
        self._kernel: Kernel | None = None
        self._literals = np.empty(0, np.int64)
        self._lasting: Laid | None = None  # the arguments that are the same for every block
        self._members: dict[str, SourceNode] = {}
        self._watchers: dict[Watched, Watcher] = {}
        self._progress = np.zeros(3, np.int64)  # the block's first frame not taken; decoded packets; 1: a bad frame
        self._skipped = np.zeros(len(SkipReason), np.int64)
        self._schedule = np.zeros(SCHEDULE, np.int64)
        self._received = 0
        self._dropped = 0
        self._low = INT64_MIN

    def start(self, *, touched: bool = False, taken_over: Collection[str] = ()) -> None:
        """Compile or load the kernel and allocate the tables. `touched`: the system allocates their memory now, for
        sources that do not wait; otherwise it does so bit by bit as packets come. `taken_over`: nodes that get no
        table, nor one for the connections that they watch, because `take_over` follows and brings theirs."""
        send_late = [node.name in self._send_late for node in self._nodes]
        reductions, sent = kernel_reductions(self._nodes, send_late)
        self._kernel, self._literals = kernel(reductions, self._build, sent, self._config.order)
        for node, late in zip(self._nodes, send_late, strict=True):
            if node.name in taken_over:
                continue
            memory = NodeMemory(node.reduction, self._config, self._link_code(node), self._rank, late)
            if touched:
                memory.touch()
            self._members[node.name] = SourceNode(node, memory)
        brought = {watched_by(node) for node in self._nodes if node.name in taken_over}
        for key, closing in watched(self._nodes).items():
            if key not in brought:
                self._watchers[key] = Watcher(closing, self._config)
        if not taken_over:
            self._lay_out()

    def _lay_out(self) -> None:
        shared = (self._progress, self._skipped, self._secrets, self._schedule, self._literals)
        arrays = (array for memory in self._memories() for array in memory.arguments)
        self._lasting = Laid(*shared, *arrays)

    @property
    def received(self) -> int:
        """Frames received = skipped + decoded."""
        return self._received

    @property
    def decoded(self) -> int:
        return int(self._progress[1])

    @property
    def dropped(self) -> int:
        """Frames that the kernel dropped before they could be received."""
        return self._dropped

    @property
    def skipped(self) -> dict[SkipReason, int]:
        return {reason: int(self._skipped[reason.value]) for reason in SkipReason}

    @property
    def low_ns(self) -> int:
        """The low-watermark of the blocks taken."""
        return self._low

    def counts(self) -> dict[str, NodeCounts]:
        """The counts of each node."""
        return {name: member.memory.counts() for name, member in self._members.items()}

    def pressures(self) -> dict[str, Pressure]:
        """The pressure on the table of each node that has one."""
        return {name: member.pressure for name, member in self._members.items() if member.memory.slots}

    def residents(self, node: str) -> Words:
        """The partials in a node's table, for audits."""
        return self._members[node].memory.residents()

    def take(self, block: FrameBlock) -> Iterator[NodeOutput]:
        """Take a block. In a live source's block, frames more than a minute ahead of its clock are skipped, and dropped
        frames count as no later than the clock."""
        _check(block)
        if block.dropped:
            self._dropped += block.dropped
            self._taint(self._dropped_in(block), block.dropped)
        for flaw in block.flaws:
            self._taint(flaw)
        self._received += len(block)
        latest = FOREVER if block.taken_ns is None else block.taken_ns + FUTURE_NS
        yield from self._run(block, latest, 2 if block.low_after == FOREVER else 0)
        self._low = max(self._low, block.low_after)
        yield from self._promise(self._low)
        yield from self._close(hurry=False)
        yield from self._drain(member for member in self._members.values() if member.memory.at_once)

    def heartbeat(self, now_ns: int) -> Iterator[NodeOutput]:
        """Call this several times a second, so that rows, taints and partials of ended panes leave in time even if no
        packets come. `now_ns` comes from any clock that does not step."""
        overdue = False
        for member in self._members.values():
            ended = member.ended_resident(self._low)
            if ended is None:
                member.waiting = None
            elif member.waiting is None or member.waiting[0] != ended:
                member.waiting = (ended, now_ns)
            else:
                patience = self._config.patience_ns(member.pane.length)
                overdue = overdue or now_ns - member.waiting[1] >= patience
        if overdue:
            yield from self._run(_nothing(self._low), FOREVER, 1)
        yield from self._promise(self._low, news=True)
        yield from self._close(hurry=True)
        yield from self._drain(self._members.values())

    def finish(self, promised_ns: int = FOREVER) -> Iterator[NodeOutput]:
        """Output everything in the tables, and all taints. `promised_ns` is the last promise: FOREVER at the end of a
        finite source; a source that is only stopped may promise less."""
        yield from self._run(_nothing(FOREVER), FOREVER, 2)
        yield from self._promise(max(promised_ns, self._low), news=True)
        yield from self._drain(self._members.values())

    def let_go(self, names: Collection[str]) -> Iterator[NodeOutput]:
        """Call this between two blocks. Output and promise everything that has ended; then output the rest of these
        nodes' tables without a promise. The nodes promise nothing any more."""
        yield from self._run(_nothing(self._low), FOREVER, 1)
        yield from self._promise(self._low, news=True)
        yield from self._drain(self._members.values())
        for name in names:
            yield NodeOutput(name, self.residents(name).copy())

    def take_over(self, before: SourceNodes) -> None:
        """Take over from started nodes on the same source, between two blocks: nodes of the same name are the same
        nodes and keep table, hash and promises. `before` must not be used any more."""
        self._secrets, self._progress, self._skipped = before._secrets, before._progress, before._skipped
        self._received, self._dropped, self._low = before._received, before._dropped, before._low
        members = self._members | before._members
        self._members = {node.name: members[node.name] for node in self._nodes}  # in the order of the kernel
        watchers = self._watchers | before._watchers
        self._watchers = {key: watchers[key] for key in watched(self._nodes)}
        self._lay_out()

    def taint(self, name: str, flaw: Flaw) -> None:
        """Report a flaw of the data against one node."""
        self._members[name].taint(flaw)

    def _run(self, block: FrameBlock, latest: int, force: int) -> Iterator[NodeOutput]:
        if self._kernel is None or self._lasting is None:
            raise RuntimeError("the nodes have not been started")
        members = self._members.values()
        tags = _NO_TAGS if block.vlan is None else block.vlan
        columns = Laid(block.data, block.offset, block.captured, block.length, block.ts, block.link, block.low, tags)
        self._progress[0] = 0
        done = False
        while not done:
            done = self._kernel(columns, block.low_after, latest, force, self._lasting)
            if self._progress[2]:
                raise ValueError("a frame of the block lies outside of its data")
            for member in members:
                member.memory.drain_late(member.late)
                for granule in sorted(member.memory.drain_lost()):
                    member.note(Taint(granule, granule + 1, (Reason.OVERFLOW.value,)))
                late = member.memory.drain_strays()
                if len(late):
                    yield NodeOutput(member.node.name, late[:0], late=late)
            for watcher in self._watchers.values():
                watcher.look()
            if not done:
                yield from self._drain(member for member in members if member.memory.is_full)

    def _drain(self, members: Iterable[SourceNode]) -> Iterator[NodeOutput]:
        for member in members:
            if member.memory.pending_rows:
                yield NodeOutput(member.node.name, member.drain())

    def _promise(self, low: int, *, news: bool = False) -> Iterator[NodeOutput]:
        for member in self._members.values():
            progress = member.progress(low, news=news)
            if progress is not None:
                yield NodeOutput(member.node.name, member.drain(), progress)

    def _close(self, *, hurry: bool) -> Iterator[NodeOutput]:
        """Promise that the connections that closed long enough ago are over. Partials of a table that keeps order
        cannot leave early."""
        if self._low == FOREVER or self._config.order is FlushOrder.PRESERVED:
            return
        for key, watcher in self._watchers.items():
            members = [member for member in self._members.values() if watched_by(member.node) == key]
            if not watcher.closed.due(self._low) or not watcher.pays(members, self._low, hurry):
                continue
            values, closed_ns = watcher.closed.take_due(self._low)
            for member in members:
                if member.node.closing is not None:
                    yield from member.close(member.node.closing, values, closed_ns)

    def _memories(self) -> Iterator[NodeMemory]:
        yield from (member.memory for member in self._members.values())
        yield from (watcher.memory for watcher in self._watchers.values())

    def _taint(self, flaw: Flaw, dropped: int = 0) -> None:
        for member in self._members.values():
            member.taint(flaw, dropped)

    def _dropped_in(self, block: FrameBlock) -> Flaw:
        """Dropped frames may have any time from the previous low-watermark to now (without a clock: to the newest
        frame)."""
        times = [block.low_after] if block.low_after != FOREVER else []
        times += [int(block.ts.min()), int(block.ts.max())] if len(block) else []
        latest = block.taken_ns if block.taken_ns is not None else max(times, default=self._low)
        earliest = self._low if self._low != INT64_MIN else min(times, default=latest)
        return Flaw(Reason.DROPPED, earliest, latest)

    def _link_code(self, node: Node) -> int:
        if "link" not in fields_of(node.reduction):
            return 0
        strings = node.reduction.strings
        if self._stream not in strings:
            raise ValueError(f"node {node.name} reads `link`, and its strings do not have stream {self._stream}")
        return strings.index(self._stream)


def _secrets(seed: int | None) -> npt.NDArray[np.int64]:
    if seed is None:
        return np.frombuffer(secrets.token_bytes(8 * SECRETS), np.int64)
    return np.random.default_rng(seed).integers(INT64_MIN, FOREVER, SECRETS, np.int64, endpoint=True)


def _nothing(low: int) -> FrameBlock:
    none = np.empty(0, np.int64)
    codes = np.empty(0, np.int32)
    return FrameBlock(np.empty(0, np.uint8), none, none, none, none, codes, none, low)


def _check(block: FrameBlock) -> None:
    """Check the columns' lengths, because the kernel trusts them."""
    columns = (block.offset, block.captured, block.length, block.link, block.low)
    if any(len(column) != len(block) for column in columns) or (
        block.vlan is not None and len(block.vlan) != len(block)
    ):
        raise ValueError("the columns of the block are not of one length")
