"""The text of one node's part of a kernel: from a parsed frame to its row, and from the row to the table.

In the templates `@` stands for the node's number, so that each node has variables and parameters of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowlevel.config import Order
from lowlevel.kernel.expressions import Scalars, Value
from lowlevel.kernel.fold import ORDERED_FOLDS, write_merge, write_sums
from lowlevel.kernel.grid import GridText
from lowlevel.kernel.parse import FIELDS, NULLS
from lowlevel.kernel.source import Source
from lowmark.query.plan import Reduction

__all__ = ["BATCH", "SECRETS", "NodeText", "leaves_at_once", "slot_words"]

BATCH = 64
"""Frames of a batch. Measured: 256 is slower, their rows leave the nearest cache."""

SECRETS = 16
"""Random words that seed the hash of a table."""

_CACHE_LINE = 8  # words


def slot_words(words: int) -> int:
    """Of a table's slot for rows of so many words: a small one is half a cache line or a whole one, so that it never
    lies across two."""
    return next((size for size in (_CACHE_LINE // 2, _CACHE_LINE) if words <= size), words)


def leaves_at_once(reduction: Reduction, order: Order) -> bool:
    """Whether a group's first tuple goes out when it comes; what is in the table counts it all the same."""
    return reduction.at_once and order is not Order.PRESERVED


_BUFFERS = (("state", "words_out"), ("out", "matrix"), ("late", "matrix"))
_STRAYS = (("strays", "matrix"),)
_TABLE = (
    ("table", "matrix"), ("ring", "slot_numbers"), ("panes", "matrix"), ("rows", "matrix"), ("slots", "words_out"),
)  # fmt: skip


class NodeText:
    """Writes the parts of one node, in the order in which its methods stand here. `send_late`: late tuples are not only
    counted, they are also put out as rows, in a buffer of their own."""

    def __init__(
        self, source: Source, number: int, reduction: Reduction, send_late: bool, prefetch: bool, order: Order
    ) -> None:
        self._source = source
        self._suffix = f"_{number}"
        self._reduction = reduction
        self._send_late = send_late
        self._prefetch = prefetch
        self._ordered = order is Order.PRESERVED and reduction.grouped
        self._at_once = leaves_at_once(reduction, order)
        self._flush = "flush_in_order" if self._ordered else "flush"
        self._words = reduction.schema.words
        self._slot_words = slot_words(self._words)
        self._widths = f"{self._words}, {self._slot_words}"
        self._grid = GridText(reduction.pane, self._suffix)
        self._sizes = f"{self._widths}, {self._grid.length}" + ("" if self._ordered else f", {int(self._at_once)}")

    @property
    def parameters(self) -> list[tuple[str, str]]:
        kinds = (*_BUFFERS, *(_STRAYS if self._send_late else ()), *(_TABLE if self._reduction.grouped else ()))
        return [(f"{name}{self._suffix}", kind) for name, kind in kinds]

    def _write(self, template: str) -> None:
        self._source.lines(template.replace("@", self._suffix))

    def write_functions(self) -> None:
        self._grid.write_functions(self._source)

    def write_widths(self) -> None:
        """Widths that stand in the text make no slot's place a product of variables."""
        self._write(f"out@ = of_width(out@, {self._words})")
        if self._reduction.grouped:
            self._write(f"""
                table@ = of_width(table@, {self._slot_words})
                rows@ = of_width(rows@, {self._words})
            """)

    def write_room(self) -> None:
        """A batch puts out at most a row a tuple (where order is kept, all residents besides; where groups leave at
        once, what they take the place of), and an entry of the late ones."""
        rows = "BATCH + state@[LENGTH]" if self._ordered else "2 * BATCH" if self._at_once else "BATCH"
        self._write(f"""
            if out@.shape[0] - state@[OUT] < {rows} or late@.shape[0] - state@[LATE] < BATCH:
                return False
        """)
        if self._send_late:
            self._write("""
                if strays@.shape[0] - state@[STRAYS] < BATCH:
                    return False
            """)

    def write_begin(self) -> None:
        self._write("""
            open@, open_until@ = state@[OPEN], state@[OPEN_UNTIL]
            rank@, link@ = state@[RANK], state@[LINK]
            filtered@, count@, put@ = 0, 0, state@[OUT]
            from@, until@, pane@ = 0, 0, 0
            moves@ = low[last] >= open_until@
        """)

    def write_tuple(self) -> None:
        """The first pass: what becomes of a parsed frame."""
        source, reduction, grid = self._source, self._reduction, self._grid
        fields = {**FIELDS, "link": (f"link{self._suffix}",), "_rank": (f"rank{self._suffix}",)}
        scalars = Scalars(source, fields, NULLS)
        passes = "True" if reduction.where is None else scalars.holds(reduction.where)
        with source.block(f"if {passes}:"):
            self._write(f"""
                if time < from@ or time >= until@:
                    pane@ = {grid.of("time")}
                    from@, until@ = {grid.start("time", "pane@")}, {grid.end("time", "pane@")}
                if moves@ and low[j] >= open_until@:
                    open@ = {grid.of("low[j]")}
                    open_until@ = {grid.end("low[j]", "open@")}
                if pane@ < open@:
                    note_late(late@, state@, pane@)
            """)
            if self._send_late:
                self._write_row(scalars)
            else:
                with source.block("else:"):
                    self._write_row(scalars)
        if reduction.where is not None:
            with source.block("else:"):
                self._write("filtered@ += 1")

    def _write_row(self, scalars: Scalars) -> None:
        """The tuple as a row: of the scratch for the table, of a selection's output, or of the late ones."""
        reduction = self._reduction
        keys = [scalars.row_words(item.expr, True) for item in (*reduction.keys, *reduction.details)]
        lifted = [scalars.row_words(lift, fold.op in ORDERED_FOLDS) for fold in reduction.folds for lift in fold.lift]
        words = [self._null_mask([*keys, *lifted]), "pane@", "1"]
        words += [word for value in (*keys, *lifted) for word in value.words]
        if self._send_late:
            with self._source.block(f"if pane{self._suffix} < open{self._suffix}:"):
                for place, word in enumerate(words):
                    self._write(f"strays@[np.uint64(state@[STRAYS]), {place}] = {word}")
                self._write("state@[STRAYS] += 1")
            with self._source.block("else:"):
                self._write_taken(words, keys)
        else:
            self._write_taken(words, keys)

    def _write_taken(self, words: Sequence[str], keys: Sequence[Value]) -> None:
        reduction = self._reduction
        row = "rows@[np.uint64(count@), {}] = {}" if reduction.grouped else "out@[np.uint64(put@), {}] = {}"
        for place, word in enumerate(words):
            self._write(row.format(place, word))
        if reduction.grouped:
            self._write_slot(keys)
        self._write("count@ += 1" if reduction.grouped else "put@ += 1")

    def _null_mask(self, values: Sequence[Value]) -> str:
        """Source of the null mask of a row whose columns behind pane and tuples these are."""
        bits = [f"np.int64({value.null}) << {place}" for place, value in enumerate(values, 2) if value.null is not None]
        return self._source.let(" | ".join(f"({bit})" for bit in bits)) if bits else "0"

    def _write_slot(self, keys: Sequence[Value]) -> None:
        """Which slot a group has: a keyed hash, as nobody outside may choose packets that all fall into one slot. The
        pane is no part of it, so that a group of a new pane takes the slot of its old self."""
        source = self._source
        mask = self._null_mask(keys)
        words = [word for value in keys for word in value.words] + ([mask] if mask != "0" else [])
        if len(words) % 2:
            words.append("0")
        digest = "secret_0"
        for number in range(len(words) // 2):
            first, second = (f"secret_{(2 * number + place) % (SECRETS - 1) + 1}" for place in (0, 1))
            pair = f"hash_pair({words[2 * number]}, {words[2 * number + 1]}, {first}, {second})"
            digest = source.let(f"hash_pair({digest}, {pair}, secret_0, {first})" if number else pair)
        self._write(f"""
            slot = {digest} & (table@.shape[0] - 1)
            slots@[np.uint64(count@)] = slot
        """)
        if self._prefetch:
            for word in {0, self._words - 1} if self._words > _CACHE_LINE else {0}:
                self._write(f"prefetch(table@, slot, {word})")

    def write_end(self) -> None:
        """The second pass, and the flush that is due by the batch's last frame."""
        self._write("""
            state@[OPEN], state@[OPEN_UNTIL] = open@, open_until@
            state@[FILTERED] += filtered@
        """)
        if not self._reduction.grouped:
            self._write("""
                count@ = put@ - state@[OUT]
                state@[OUT] = put@
                state@[TAKEN] += count@
                state@[OUT_TUPLES] += count@
                state@[STRAIGHT] += count@
            """)
            return
        self._write("""
            state@[TAKEN] += count@
            head, length_, due, old = state@[HEAD], state@[LENGTH], state@[DUE], state@[OLD]
            tuples_out, evicted, straight = 0, 0, 0
        """)
        if self._ordered:
            self._write("empty_below = -0x8000000000000000")
        if self._prefetch:
            self._write_prefetch_of_pairs()
        with self._source.block(f"for k in range(np.uint64(count{self._suffix})):"):
            self._write_step()
        self._write(f"""
            state@[OUT], state@[LENGTH], state@[OLD] = put@, length_, old
            state@[OUT_TUPLES] += tuples_out
            state@[EVICTED] += evicted
            state@[STRAIGHT] += straight
            low_now = low[last]
            if length_ != 0 and (old != 0 or low_now >= open_until@ or open@ - state@[DELAY] > due):
                if not {self._flush_at("low_now", "0")}:
                    return False
        """)

    def _write_prefetch_of_pairs(self) -> None:
        """Of slots that have another group: a pass of its own, for by now their lines have come."""
        self._write(f"""
            for k in range(np.uint64(count@)):
                slot = np.uint64(slots@[k])
                pane = rows@[k, 1]
                if table@[slot, 2] != 0 and table@[slot, 1] >= pane and not ({self._same_group("slot")}):
                    prefetch(table@, np.int64(slot) ^ 1, 0)
        """)

    def _write_step(self) -> None:
        """One tuple into the table: merged with its group, or in the place of another one, or past it."""
        source, reduction = self._source, self._reduction
        self._write("""
            slot = np.uint64(slots@[k])
            pane, old_pane = rows@[k, 1], 0
            tuples = table@[slot, 2]
            goes_straight = False
        """)
        self._write_other_slot()
        with source.block("if tuples != 0:"):
            self._write("old_pane = table@[slot, 1]")
            with source.block(f"if {self._same_group('slot')}:"):
                names = (f"table{self._suffix}", f"rows{self._suffix}")
                overflow = write_sums(source, reduction, *names)
                with source.block(f"if not ({overflow}):"):
                    write_merge(source, reduction, *names)
                    source.line("continue")
                if overflow != "False":
                    source.line(f"state{self._suffix}[OVERFULL] += 1")
            with source.block("elif pane < old_pane:"):
                source.line("goes_straight = True")
        self._write("""
            place = pane & (PANES - 1)
            if panes@[1, place] != 0 and panes@[0, place] != pane:
                goes_straight = True
        """)
        if self._ordered:
            self._write_older_first()
        self._write(f"""
            if goes_straight:
                copy_row(out@, put@, rows@, k, {self._words})
                put@ += 1
                tuples_out += 1
                straight += 1
                continue
        """)
        with source.block("if tuples != 0:"):
            self._write_eviction()
        self._write(f"""
            else:
                ring@[np.uint64((head + length_) & (table@.shape[0] - 1))] = slot
                length_ += 1
            panes@[0, place] = pane
            panes@[1, place] += 1
            copy_row(table@, slot, rows@, k, {self._words})
        """)
        if self._at_once:
            self._write(f"""
                copy_row(out@, put@, rows@, k, {self._words})
                put@ += 1
                tuples_out += 1
                straight += 1
            """)
        if self._ordered:
            source.line("empty_below = min(empty_below, pane)")

    def _write_eviction(self) -> None:
        if self._at_once:
            self._write(f"""
                if tuples > 1:
                    copy_row(out@, put@, table@, slot, {self._words})
                    out@[np.uint64(put@), 2] = tuples - 1
                    put@ += 1
                    tuples_out += tuples - 1
            """)
        else:
            self._write(f"""
                copy_row(out@, put@, table@, slot, {self._words})
                put@ += 1
                tuples_out += tuples
            """)
        self._write("""
            evicted += 1
            panes@[1, old_pane & (PANES - 1)] -= 1
            if old_pane < due:
                old -= 1
        """)

    def _write_other_slot(self) -> None:
        """Where another group of this pane or a newer one sits in a group's slot, the other slot of the pair may have
        room for it (Li 8.3.3, footnote 4). The processor fetches the lines of a pair together."""
        self._write(f"""
            if tuples != 0 and table@[slot, 1] >= pane and not ({self._same_group("slot")}):
                other = (slot ^ np.uint64(1)) & np.uint64(table@.shape[0] - 1)
                if table@[other, 2] == 0 or table@[other, 1] < pane or ({self._same_group("other")}):
                    slot = other
                    tuples = table@[slot, 2]
        """)

    def _write_older_first(self) -> None:
        """Where order is kept: everything older leaves before a row does."""
        self._write(f"""
            leaving = pane if goes_straight else old_pane if tuples != 0 else empty_below
            if empty_below < leaving:
                state@[OUT], state@[LENGTH], state@[OLD] = put@, length_, old
                flush_below(table@, ring@, panes@, state@, out@, leaving, {self._widths})
                put@, length_, old, empty_below = state@[OUT], state@[LENGTH], state@[OLD], leaving
        """)

    def _same_group(self, slot: str) -> str:
        named = (*self._reduction.keys, *self._reduction.details)
        nullable = sum(1 << place for place, item in enumerate(named, 2) if item.expr.nullable)
        tests = [f"table@[{slot}, 1] == pane"]
        if nullable:
            tests.append(f"(table@[{slot}, 0] ^ rows@[k, 0]) & {nullable} == 0")
        words = sum(item.expr.kind.words for item in named)
        tests += [f"table@[{slot}, {at}] == rows@[k, {at}]" for at in range(3, 3 + words)]
        return " and ".join(tests).replace("@", self._suffix)

    def write_last_flush(self) -> None:
        """What is due when all frames of the block have been taken."""
        if self._reduction.grouped:
            self._write(f"""
                if state@[LENGTH] != 0 and low_after > -0x7FFFFFFFFFFFFFFF:
                    if not {self._flush_at("low_after", "force")}:
                        done = False
            """)

    def _flush_at(self, low: str, force: str) -> str:
        low = f"{self._grid.of(low)}, {self._grid.since(low)}"
        return f"{self._flush}(table@, ring@, panes@, state@, out@, {low}, {force}, {self._sizes})"
