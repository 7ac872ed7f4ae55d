"""The text of one node's second pass over a batch: each row is merged with its group in the table, replaces another
group, or is output without entering the table.

In the templates `@` stands for the node's number, as in `node`.
"""

from __future__ import annotations

from lowlevel.config import FlushOrder
from lowlevel.kernel.codegen.folds import write_merge, write_sums
from lowlevel.kernel.codegen.source_text import SourceText
from lowlevel.kernel.inlined.panes import ROW_KEYS
from lowlevel.kernel.row_form import RowForm
from lowmark.query.plan.nodes import Reduction

__all__ = ["CACHE_LINE", "TableText", "leaves_at_once", "slot_words"]

CACHE_LINE = 8  # words


def slot_words(words: int) -> int:
    """The words of a table's slot for rows of so many words: a small slot is half a cache line or a whole one, so that
    it never crosses two."""
    return next((size for size in (CACHE_LINE // 2, CACHE_LINE) if words <= size), words)


def leaves_at_once(reduction: Reduction, order: FlushOrder) -> bool:
    """Whether a group's first tuple is output on arrival; the resident in the table counts it nevertheless."""
    return reduction.at_once and order is not FlushOrder.PRESERVED


class TableText:
    """The table text of a node that groups."""

    def __init__(
        self, source: SourceText, suffix: str, reduction: Reduction, prefetch: bool, order: FlushOrder
    ) -> None:
        self._source = source
        self._suffix = suffix
        self._reduction = reduction
        self._prefetch = prefetch
        self._ordered = order is FlushOrder.PRESERVED
        self._at_once = leaves_at_once(reduction, order)
        self._form = RowForm(reduction)
        self._words = self._form.words

    def _write(self, template: str) -> None:
        self._source.lines(template.replace("@", self._suffix))

    def write_rows(self) -> None:
        """State that changes with each row is in variables meanwhile; `NodeText.write_end` loads and stores it."""
        if self._ordered:
            self._write("empty_below = -0x8000000000000000")
        if self._prefetch:
            self._write_prefetch_of_pairs()
        with self._source.block(f"for k in range(np.uint64(count{self._suffix})):"):
            self._write_step()

    def _write_prefetch_of_pairs(self) -> None:
        """Prefetch the other slot of each pair whose slot has another group. The second pass knows which slots these
        are."""
        self._write(f"""
            for k in range(np.uint64(count@)):
                slot = np.uint64(slots@[k])
                pane = rows@[k, ROW_PANE]
                stays = table@[slot, ROW_TUPLES] != 0 and table@[slot, ROW_PANE] >= pane
                if stays and not ({self._same_group("slot")}):
                    prefetch(table@, np.int64(slot) ^ 1, 0)
        """)

    def _write_step(self) -> None:
        source, reduction = self._source, self._reduction
        self._write("""
            slot = np.uint64(slots@[k])
            pane, old_pane = rows@[k, ROW_PANE], 0
            tuples = table@[slot, ROW_TUPLES]
            goes_straight = False
        """)
        self._write_other_slot()
        with source.block("if tuples != 0:"):
            self._write("old_pane = table@[slot, ROW_PANE]")
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
            if panes@[PANE_RESIDENTS, place] != 0 and panes@[PANE_NUMBER, place] != pane:
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
            panes@[PANE_NUMBER, place] = pane
            panes@[PANE_RESIDENTS, place] += 1
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
                    out@[np.uint64(put@), ROW_TUPLES] = tuples - 1
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
            panes@[PANE_RESIDENTS, old_pane & (PANES - 1)] -= 1
            if old_pane < due:
                old -= 1
        """)

    def _write_other_slot(self) -> None:
        """If another group of this pane or a newer one is in a group's slot, the other slot of the pair may have room
        for it (Li 8.3.3, footnote 4). The processor fetches the lines of a pair together."""
        self._write(f"""
            if tuples != 0 and table@[slot, ROW_PANE] >= pane and not ({self._same_group("slot")}):
                other = (slot ^ np.uint64(1)) & np.uint64(table@.shape[0] - 1)
                if table@[other, ROW_TUPLES] == 0 or table@[other, ROW_PANE] < pane or ({self._same_group("other")}):
                    slot = other
                    tuples = table@[slot, ROW_TUPLES]
        """)

    def _write_older_first(self) -> None:
        """If order is kept, flush everything older before a row leaves."""
        self._write(f"""
            leaving = pane if goes_straight else old_pane if tuples != 0 else empty_below
            if empty_below < leaving:
                state@[OUT], state@[LENGTH], state@[OLD] = put@, length_, old
                flush_below(table@, ring@, panes@, state@, out@, leaving, {self._words}, {slot_words(self._words)})
                put@, length_, old, empty_below = state@[OUT], state@[LENGTH], state@[OLD], leaving
        """)

    def _same_group(self, slot: str) -> str:
        bits = self._form.key_bits
        tests = [f"table@[{slot}, ROW_PANE] == pane"]
        if bits:
            tests.append(f"(table@[{slot}, ROW_MASK] ^ rows@[k, ROW_MASK]) & {bits} == 0")
        tests += [f"table@[{slot}, {at}] == rows@[k, {at}]" for at in range(ROW_KEYS, ROW_KEYS + self._form.key_words)]
        return " and ".join(tests).replace("@", self._suffix)
