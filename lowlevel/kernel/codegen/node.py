"""The text of one node's part of a kernel: from a parsed frame to its row, and around the batches. `table_insert`
writes how rows enter the table.

In the templates `@` stands for the node's number, so that each node has variables and parameters of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from lowlevel.config import FlushOrder
from lowlevel.kernel.codegen.expressions import Scalars, Value
from lowlevel.kernel.codegen.folds import ORDERED_FOLDS
from lowlevel.kernel.codegen.literals import Literals
from lowlevel.kernel.codegen.membership import named_sections
from lowlevel.kernel.codegen.panes_of_times import GridText
from lowlevel.kernel.codegen.parse_frame import FIELDS, NULLS
from lowlevel.kernel.codegen.source_text import SourceText
from lowlevel.kernel.codegen.table_insert import CACHE_LINE, TableText, leaves_at_once, slot_words
from lowlevel.kernel.row_form import RowForm
from lowmark.query.expr.expressions import Expr
from lowmark.query.plan.nodes import Reduction

__all__ = ["BATCH", "SECRETS", "NodeText", "node_parameters"]

BATCH = 64
"""Frames of a batch. By measurement 256 is slower, because the rows leave the nearest cache."""

SECRETS = 16
"""Random words that seed the hash of a table."""

_BUFFERS = (("state", "words_out"), ("out", "matrix"), ("late", "matrix"))
_STRAYS = (("strays", "matrix"),)
_LOST = (("lost", "words_out"),)
_TABLE = (
    ("table", "matrix"), ("ring", "slot_numbers"), ("panes", "matrix"), ("rows", "matrix"), ("slots", "words_out"),
)  # fmt: skip


def node_parameters(number: int, reduction: Reduction, send_late: bool) -> list[tuple[str, str]]:
    """Names and type names of one node's parameters of the kernel."""
    some = ((send_late, _STRAYS), (reduction.checked, _LOST), (reduction.grouped, _TABLE))
    kinds = [*_BUFFERS]
    for section in chain.from_iterable(named_sections(reduction).values()):
        kinds += [(section.rows, "ranges"), (section.directory, "words")]
    kinds += [buffer for there, buffers in some if there for buffer in buffers]
    return [(f"{name}_{number}", kind) for name, kind in kinds]


class NodeText:
    """Writes the parts of one node, in the order of its methods here. `send_late`: late tuples are not only counted,
    but also output as rows, in a buffer of their own."""

    def __init__(
        self, source: SourceText, literals: Literals, number: int, reduction: Reduction, send_late: bool,
        prefetch: bool, order: FlushOrder,
    ) -> None:  # fmt: skip
        self._source = source
        self._literals = literals
        self._suffix = f"_{number}"
        self._reduction = reduction
        self._send_late = send_late
        self._checked = reduction.checked
        self._prefetch = prefetch
        self._order = order
        self._ordered = order is FlushOrder.PRESERVED and reduction.grouped
        self._at_once = leaves_at_once(reduction, order)
        self._flush = "flush_in_order" if self._ordered else "flush"
        self._form = RowForm(reduction)
        self._words = self._form.words
        self._slot_words = slot_words(self._words)
        self._widths = f"{self._words}, {self._slot_words}"
        self._grid = GridText(reduction.pane, self._suffix, literals)
        self._sets = named_sections(reduction, self._suffix)
        self._sizes = f"{self._widths}, {self._grid.length}" + ("" if self._ordered else f", {int(self._at_once)}")

    def _write(self, template: str) -> None:
        self._source.lines(template.replace("@", self._suffix))

    def write_functions(self, decorators: Sequence[str]) -> None:
        self._grid.write_functions(self._source, decorators)

    def write_widths(self) -> None:
        """Write widths as constants, so that a slot's address needs no multiplication by a variable."""
        self._write(f"out@ = of_width(out@, {self._words})")
        for section in chain.from_iterable(self._sets.values()):
            self._source.line(f"{section.rows} = of_width({section.rows}, {section.width})")
        if self._reduction.grouped:
            self._write(f"""
                table@ = of_width(table@, {self._slot_words})
                rows@ = of_width(rows@, {self._words})
            """)

    def write_room(self) -> None:
        """Write the check that a batch's output fits: at most one row per tuple and one entry for late ones. If order
        is kept, all residents may leave, too; if groups leave at once, the residents that they replace."""
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
        if self._checked:
            self._write("""
                if lost@.shape[0] - 1 - lost@[0] < BATCH:
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
        """Write the first pass over a parsed frame."""
        source, reduction, grid = self._source, self._reduction, self._grid
        fields = {**FIELDS, "link": (f"link{self._suffix}",), "_rank": (f"rank{self._suffix}",)}
        scalars = Scalars(source, fields, NULLS, self._sets, self._literals)
        passes = "True" if reduction.where is None else scalars.holds(reduction.where)
        if reduction.where is not None:
            self._write_lost(scalars, [reduction.where], grid.of("time"))
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
        """Write the tuple as a row into the scratch for the table, a selection's output, or the buffer of late rows. A
        tuple notes at most one pane in which something is lost, because a condition's pane is that of the row."""
        reduction = self._reduction
        named = [scalars.row_words(item.expr, True) for item in (*reduction.keys, *reduction.details)]
        keys = [self._form.packed(place, value) for place, value in enumerate(named, 2)]
        lifted = [scalars.row_words(lift, fold.op in ORDERED_FOLDS) for fold in reduction.folds for lift in fold.lift]
        self._write_lost(scalars, reduction.exprs, "pane@")
        words = [self._null_mask([*keys, *lifted]), "pane@", "1"]
        words += [word for value in (*keys, *lifted) for word in value.words]
        if self._send_late:
            with self._source.block(f"if pane{self._suffix} < open{self._suffix}:"):
                for place, word in enumerate(words):
                    self._write(f"strays@[np.uint64(state@[STRAYS]), {place}] = {word}")
                self._write("state@[STRAYS] += 1")
            with self._source.block("else:"):
                self._write_taken(words, named, keys)
        else:
            self._write_taken(words, named, keys)

    def _write_lost(self, scalars: Scalars, exprs: Sequence[Expr], pane: str) -> None:
        if (lost := scalars.lost(exprs)) is not None:
            with self._source.block(f"if {lost}:"):
                self._write(f"note_lost(lost@, {pane})")

    def _write_taken(self, words: Sequence[str], named: Sequence[Value], keys: Sequence[Value]) -> None:
        reduction = self._reduction
        row = "rows@[np.uint64(count@), {}] = {}" if reduction.grouped else "out@[np.uint64(put@), {}] = {}"
        for place, word in enumerate(words):
            self._write(row.format(place, word))
        if reduction.grouped:
            self._write_slot([word for value in keys for word in value.words], self._null_mask(named))
        self._write("count@ += 1" if reduction.grouped else "put@ += 1")

    def _null_mask(self, values: Sequence[Value]) -> str:
        """Source of the null mask of a row with these columns after pane and tuples."""
        bits = [f"np.int64({value.null}) << {place}" for place, value in enumerate(values, 2) if value.null is not None]
        return self._source.let(" | ".join(f"({bit})" for bit in bits)) if bits else "0"

    def _write_slot(self, words: list[str], nulls: str) -> None:
        """Write the slot of a group: a keyed hash, so that an attacker cannot choose packets that all fall into one
        slot. The pane is not part of it, so a group in a new pane takes the slot of its old pane. Nor are the versions
        of packed addresses: at most as many groups differ in nothing else as a pair of slots can hold."""
        source = self._source
        if nulls != "0":
            words.append(nulls)
        if len(words) % 2:
            words.append("0")
        digest = "secret_0"
        for number in range(len(words) // 2):
            first, second = (f"secret_{(2 * number + place) % (SECRETS - 1) + 1}" for place in (0, 1))
            pair = f"hash_pair({words[2 * number]}, {words[2 * number + 1]}, {first}, {second})"
            digest = source.let(f"hash_pair({digest}, {pair}, secret_0, {first})" if number else pair)
        self._write(f"""
            home = {digest} & (table@.shape[0] - 1)
            slots@[np.uint64(count@)] = home
        """)
        if self._prefetch:
            for word in {0, self._words - 1} if self._words > CACHE_LINE else {0}:
                self._write(f"prefetch(table@, home, {word})")

    def write_end(self) -> None:
        """Write the second pass, and the flush that is due at the batch's last frame."""
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
        TableText(self._source, self._suffix, self._reduction, self._prefetch, self._order).write_rows()
        self._write(f"""
            state@[OUT], state@[LENGTH], state@[OLD] = put@, length_, old
            state@[OUT_TUPLES] += tuples_out
            state@[EVICTED] += evicted
            state@[STRAIGHT] += straight
            low_now = low[last]
            if length_ != 0 and (old != 0 or low_now >= open_until@ or open@ - state@[DELAY] > due):
                if not {self._flush_at("low_now", "0")}:
                    full = True
        """)

    def write_last_flush(self) -> None:
        """Write the flush that is due when all frames of the block have been taken."""
        if self._reduction.grouped:
            self._write(f"""
                if state@[LENGTH] != 0 and low_after > -0x7FFFFFFFFFFFFFFF:
                    if not {self._flush_at("low_after", "force")}:
                        done = False
            """)

    def _flush_at(self, low: str, force: str) -> str:
        low = f"{self._grid.of(low)}, {self._grid.since(low)}"
        return f"{self._flush}(table@, ring@, panes@, state@, out@, {low}, {force}, {self._sizes})"
