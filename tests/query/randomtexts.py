"""Random texts for the compiler, drawn by a grammar of their own: mostly queries that could be meant, of every clause
and far beyond every sensible size; some are then damaged. A seed gives the same text in every process.

What `try_text` wants of each: it is answered, down to the kernel's text and what `explain` prints, or refused as a
QueryError. Any other exception is what it is there to find.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from lowlevel.kernel.codegen.assemble import kernel_source
from lowmark.query.compile import compile_query
from lowmark.query.explain.report import render
from lowmark.query.optimize.stream_statistics import UNKNOWN, Expected, UnknownInput
from lowmark.query.options import Late, Limits
from lowmark.query.parse.errors import QueryError

__all__ = ["SHAPES", "Case", "Outcome", "draw", "try_text"]


@dataclass(frozen=True, slots=True)
class Case:
    shape: str
    text: str
    streams: dict[str, int] | None
    buckets: int
    late: Late
    expire_idle_ns: int | None
    expected: Expected


@dataclass(frozen=True, slots=True)
class Outcome:
    answered: bool
    seconds: float  # of this process, on the processor
    message: str = ""  # of a refusal
    found: str = ""  # the traceback of what is neither an answer nor a refusal


def draw(seed: int) -> Case:
    random = Random(seed)
    shape = random.choice(list(SHAPES))
    text = SHAPES[shape](_Texts(random))
    streams = random.choice((None, None, {"A": 1, "B": 1, "C": 1}, {"A": 3, "B": 1, "C": 2}))
    late = random.choice((*(4 * [Late.COUNT]), Late.EMIT, Late.CORRECT))
    expire_idle_ns = 10**9 if random.random() < 0.05 else None
    rates = {name: 10.0 ** random.randint(-9, 9) for name in ("A", "x") if re.search(rf"\\b{name}\\b", text)}
    expected = Expected.of(rates, {}) if random.random() < 0.2 else UNKNOWN
    return Case(shape, text, streams, random.choice((1, 16)), late, expire_idle_ns, expected)


def try_text(case: Case) -> Outcome:
    begun = time.process_time()
    try:
        plan = compile_query(
            case.text, streams=case.streams, buckets=case.buckets, late=case.late,
            limits=Limits(expire_idle_ns=case.expire_idle_ns), expected=case.expected,
        )  # fmt: skip
        seconds = time.process_time() - begun
        render(plan)
        kernel_source(plan.stage.nodes)
        return Outcome(True, seconds)
    except UnknownInput as error:  # something was said of an input that the text turned out not to have
        return Outcome(False, time.process_time() - begun, str(error))
    except QueryError as error:
        seconds = time.process_time() - begun
        try:
            error.render()
        except Exception:  # whatever it is, a refusal that cannot be shown is a find
            return Outcome(False, seconds, found=traceback.format_exc())
        return Outcome(False, seconds, error.message)
    except Exception:  # whatever a text makes the compiler do, it is a find
        return Outcome(False, time.process_time() - begun, found=traceback.format_exc())


_INTEGERS = ("len", "ip_len", "payload_len", "ttl", "tos", "srcPort", "destPort", "proto", "tcp_flags", "vlan")
_OTHERS = (
    "ts",
    "inner.srcIP",
    "dst",
    "x.len",
    "nonesuch",
    "srcMAC",
    "link",
    "row_num",
    "row-num",
    "arrival_ts",
    "conn",
    "community_id",
    "inner.ttl",
    "Length",
)
_LITERALS = (
    "0", "1", "7", "80", "-1", "0x1F", "2.5", "1e300", "1e-300", ".5", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "123456789012345678901234567890", "9" * 101, "1e999", "5 s", "10 minutes", "0.5 ns",
    "300 years", "293 years", "3000 weeks", "10 rows", "10.0.0.1", "10.0.0.0/8", "2001:db8::1", "::/0", "::ffff:0:0/95",
    "10.0.0.0/33", "300.0.0.1", "00:11:22:33:44:55", "'text'", '"text"', "''", "'10.0.0.1'", "'2024-05-01T12:00:00Z'",
    "'2024-02-30T12:00:00Z'", "'9999-12-31T23:59:59Z'", "true", "FALSE", "'ü\u0301漢'", "'10.0.0.0/8'",
)  # fmt: skip
_NAMES = ("count", "sum", "avg", "min", "max", "variance", "stddev", "first", "last", "bit_or", "bit_and", "median",
          "quantile", "approx_count_distinct", "approx_quantile", "heavy_hitter", "total", "prefix", "greatest",
          "nonesuch")  # fmt: skip
_SIZES = ("10 s", "1 minute", "3 s", "60", "2.5", "10 rows", "1 row", "0 s", "100 days", "200 years", "7 ns", "ALL",
          "TUMBLING 10 s", "TUMBLING 10 rows", "1 day")  # fmt: skip
_DAMAGE = ("SELECT", "FROM", "(", ")", "[", "]", ",", ";", ".", "'", '"', "/*", "*/", "/*+", "--", "AND", "NOT", "IN",
           "EXISTS", "UNION", "JOIN", "ON", "BETWEEN", "IS", "NULL", "AS", "*", "-", "9" * 300, "\x00", "\ufeff", "é",
           "☃", "\n", "GROUP BY", "row-num", "1.2.3.4.5", "::", "0x", "1e", "10 s")  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Source:
    """An input of FROM, and what can be read of it."""

    text: str
    numbers: tuple[str, ...] = _INTEGERS
    addresses: tuple[str, ...] = ("srcIP", "destIP")
    time: str = "ts"

    def of(self, label: str) -> _Source:
        numbers, addresses = ([f"{label}.{name}" for name in names] for names in (self.numbers, self.addresses))
        return _Source(f"{self.text} AS {label}", tuple(numbers), tuple(addresses), f"{label}.{self.time}")


_PACKETS = _Source("A")


@dataclass
class _Texts:
    """Draws texts; `source` is what expressions read at the moment."""

    random: Random
    created: list[_Source] = field(default_factory=list)
    source: _Source = _PACKETS

    # Choices

    def one(self, of: Sequence[str]) -> str:
        return self.random.choice(of)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def sometimes(self, share: float, make: Callable[[], str]) -> str:
        return make() if self.chance(share) else ""

    def many(self, make: Callable[[], str], most: int, between: str = ", ") -> str:
        return between.join(make() for _ in range(self.random.randint(1, most)))

    def size(self) -> int:
        """Few, and now and then far too many."""
        return round(2 ** self.random.uniform(0, self.random.choice((3, 3, 6, 8, 11))))

    # Expressions

    def number(self, depth: int = 2) -> str:
        if depth <= 0 or self.chance(0.4):
            return self.one(self.source.numbers) if self.chance(0.7) else str(self.random.randint(0, 70))
        signs = ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")
        return f"({self.number(depth - 1)} {self.one(signs)} {self.number(depth - 1)})"

    def odd(self, depth: int = 1) -> str:
        """An expression of any kind, or of none."""
        kind = self.random.random()
        if depth <= 0 or kind < 0.4:
            return self.one((*_LITERALS, *_OTHERS, *self.source.addresses, self.source.time))
        if kind < 0.7:
            return f"({self.odd(depth - 1)} {self.one(('+', '-', '*', '/', '%', '&'))} {self.odd(depth - 1)})"
        if kind < 0.85:
            return f"{self.one(('-', '~', '+', '- '))}{self.odd(depth - 1)}"
        return f"prefix({self.one(self.source.addresses)}, {self.random.randint(0, 33)})"

    def value(self) -> str:
        return self.number() if self.chance(0.93) else self.odd()

    def condition(self, depth: int) -> str:
        kind = self.random.random()
        if depth > 0 and kind < 0.4:
            return f"({self.condition(depth - 1)} {self.one(('AND', 'OR'))} {self.condition(depth - 1)})"
        if depth > 0 and kind < 0.5:
            return f"NOT {self.condition(depth - 1)}"
        if kind < 0.7:
            return f"{self.value()} {self.one(('=', '<>', '<', '<=', '>', '>=', '!='))} {self.number(1)}"
        if kind < 0.8:
            return f"{self.one(self.source.addresses)} {self.sometimes(0.3, lambda: 'NOT ')}IN {self.choices()}"
        if kind < 0.88:
            return f"{self.number(1)} IN ({self.many(lambda: str(self.random.randint(0, 99)), self.size())})"
        if kind < 0.94:
            return f"{self.value()} BETWEEN {self.number(1)} AND {self.number(1)}"
        return f"({self.value()}) IS {self.sometimes(0.5, lambda: 'NOT ')}NULL"

    def choices(self) -> str:
        addresses = ("10.0.0.1", "10.0.0.0/8", "2001:db8::/32", "'10.1.0.0/16'", "::ffff:0:0/95", "'10.0.0.9'")
        return f"({self.many(lambda: self.one(addresses), 4)})"

    def call(self) -> str:
        kind = self.random.random()
        if kind < 0.3:
            return "count(*)"
        if kind < 0.93:
            return f"{self.one(('sum', 'min', 'max', 'avg', 'variance', 'median', 'bit_or', 'first'))}({self.number()})"
        distinct = self.sometimes(0.2, lambda: "DISTINCT ")
        return f"{self.one(_NAMES)}({distinct}{self.many(self.odd, 3)})"

    def over_groups(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.5):
            return self.call()
        return f"({self.over_groups(depth - 1)} {self.one('+-*/%')} {self.over_groups(depth - 1)})"

    # Clauses

    def window(self) -> str:
        attribute = f", WA {self.source.time}"
        if self.chance(0.1):
            return self.one(
                (
                    f"[RANGE {self.one(_SIZES)}, SLIDE {self.one(_SIZES)}, WA {self.odd()}]",
                    f"[RANGE 9 rows, SLIDE 4 rows, WA row_num, PA {self.one(self.source.addresses)}]",
                    "[RANGE 9 rows, SLIDE 4 rows, WA row_num]",
                    f"[RANGE 5 s, RATTR ts, SLIDE 5 rows, SATTR {self.one(('row_num', 'rank(ts)'))}]",
                    f"[RANGE ALL, SLIDE 10 s{attribute}]",
                )
            )
        slide = self.sometimes(0.4, lambda: f", SLIDE {self.one(('1 s', '2 s', '5 s', '1 minute'))}")
        return f"[RANGE {self.one(('10 s', '1 minute', '3 s', '60'))}{slide}{attribute}]"

    def relation(self, depth: int) -> _Source:
        kind = self.random.random()
        if depth > 0 and kind < 0.2:
            before = self.source
            text, made = self.select(depth - 1)
            self.source = before
            return replace(made, text=f"({text})")
        if kind < 0.4:
            one = replace(_PACKETS, text=self.one("ABC")) if self.chance(0.6) else self.random.choice(self._streams())
            other = self.one((*"ABC", *(stream.text for stream in self.created))) if self.chance(0.1) else one.text
            return replace(one, text=f"({one.text} UNION {other})")
        return self.random.choice(self._streams())

    def _streams(self) -> list[_Source]:
        return [*(replace(_PACKETS, text=name) for name in "ABC"), *self.created, *self.created]

    def hint(self) -> str:
        return self.one(("/*+ probe(x, y) */", "/*+ strategy(wid) */", "/*+ strategy(panes) */", "/*+ bucket(srcIP) */",
                         "/*+ bucket(len) probe(y, x) */", "/*+ nonesuch(x) */"))  # fmt: skip

    def select(self, depth: int) -> tuple[str, _Source]:
        """And what it gives to those that read it."""
        kind = self.random.random()
        make = self.plain if kind < 0.35 else self.grouped if kind < 0.75 else self.joined
        text, made = make(depth)
        return f"SELECT {self.sometimes(0.05, lambda: f'{self.hint()} ')}{text}", made

    def where(self, depth: int = 2) -> str:
        return self.sometimes(0.5, lambda: f" WHERE {self.condition(depth)}")

    def plain(self, depth: int) -> tuple[str, _Source]:
        self.source = source = self.relation(depth)
        names = [f"c{number}" for number in range(self.random.randint(1, 4))]
        items = [f"{source.time} AS t", f"{self.one(source.addresses)} AS a"]
        items += [f"{self.value()} AS {name}" for name in names]
        order = self.sometimes(
            0.1, lambda: f" ORDER BY {source.time}{self.sometimes(0.3, lambda: f', {self.value()}')}"
        )
        made = _Source("", tuple(names), ("a",), "t")
        if self.chance(0.1):
            test = f"EXISTS (SELECT * FROM B AS y [RANGE 2 s] WHERE y.srcIP = x.{source.addresses[0]})"
            negated = self.sometimes(0.4, lambda: "NOT ")
            window = f"[RANGE 1 s, WA {source.time}]"
            return f"{', '.join(items)} FROM {source.text} AS x {window} WHERE {negated}{test}", made
        return f"{', '.join(items)} FROM {source.text}{self.where()}{order}", made

    def grouped(self, depth: int) -> tuple[str, _Source]:
        self.source = source = self.relation(depth)
        keys = [f"{self.one(source.addresses)} AS a", *(f"{self.number(1)} AS k{n}" for n in range(2))]
        keys = keys[: self.random.randint(1, 3)]
        shown = [key.rpartition(" ")[2] for key in keys]
        names = [f"n{number}" for number in range(self.random.randint(1, 3))]
        text = ", ".join([*shown, *(f"{self.over_groups(1)} AS {name}" for name in names)])
        windowless = self.chance(0.1)
        keys += [f"{source.time} AS t"] if windowless else []
        text = f"{self.sometimes(0.1, lambda: 'DISTINCT ')}{text}{', t' if windowless else ' ' + self.window()}"
        text += f" FROM {source.text}{self.where()} GROUP BY {', '.join(keys)}"
        text += self.sometimes(0.2, lambda: f" HAVING {self.over_groups(1)} > {self.random.randint(0, 9)}")
        text += self.sometimes(0.15, lambda: f" ORDER BY {names[0]} DESC{self.sometimes(0.8, lambda: ' LIMIT 3')}")
        return text, _Source("", (*names, *shown[1:]), ("a",), "t" if windowless else "window_end")

    def joined(self, depth: int) -> tuple[str, _Source]:
        labels = ("x", "y", "z", "w", "v")[: self.random.choice((2, 2, 2, 3, 5))]
        inputs = [self.relation(depth).of(label) for label in labels]
        numbers = tuple(number for source in inputs for number in source.numbers)
        addresses = tuple(address for source in inputs for address in source.addresses)
        times = [source.time.partition(".")[2] for source in inputs]
        windows = [f"[RANGE {self.one(('1 s', '2 s', '10 s'))}, WA {time}]" for time in times]
        equal = [f"{inputs[0].addresses[0]} = {source.addresses[0]}" for source in inputs[1:]]
        self.source = _Source("", numbers, addresses, inputs[0].time)
        items = [f"{self.source.time} AS t", f"{addresses[0]} AS a", f"{self.number()} AS c0", f"{self.number()} AS c1"]
        made, group = _Source("", ("c0", "c1"), ("a",), "t"), ""
        if self.chance(0.3):
            items = [f"{addresses[0]} AS a", f"{self.call()} AS c0 {self.window()}"]
            made, group = _Source("", ("c0",), ("a",), "window_end"), f" GROUP BY {addresses[0]}"
        if self.chance(0.6):
            listed = ", ".join(f"{source.text} {window}" for source, window in zip(inputs, windows, strict=True))
            conditions = " AND ".join((*equal, self.condition(1)))
            return f"{', '.join(items)} FROM {listed} WHERE {conditions}{group}", made
        kinds = ("JOIN", "LEFT JOIN", "FULL OUTER JOIN", "RIGHT JOIN", "SEMI JOIN", "ANTI JOIN", "INNER JOIN")
        text = f"{inputs[0].text} {windows[0]}"
        for source, window, condition in zip(inputs[1:], windows[1:], equal, strict=True):
            text += f" {self.one(kinds)} {source.text} {window} ON {condition}"
        return f"{', '.join(items)} FROM {text}{group}", made

    def create(self, made: tuple[str, _Source]) -> str:
        name = f"s{len(self.created)}"
        self.created.append(replace(made[1], text=name))
        return f"CREATE STREAM {name} AS {made[0]}; "

    # Shapes

    def script(self) -> str:
        text = "".join(self.create(self.select(1)) for _ in range(self.random.choice((0, 0, 1, 2, 4))))
        return text + self.select(2)[0]

    def deep(self) -> str:
        """Something around something, any number of times."""
        times = self.size()
        before, behind, inner = self.random.choice(
            (
                ("(", ")", self.number(1)), ("-", "", "len"), ("~", "", "ttl"), ("NOT ", "", "len = 1"),
                ("1 + (", ")", "len"), ("(", ") + 1", "len"), ("NOT (", " OR ttl = 1)", "len = 1"),
                ("(", " AND ttl = 1) OR proto = 6", "len = 1"), ("prefix(", ", 24)", "srcIP"), ("len - (", ")", "1"),
                ("len IN (", ")", "1"), ("(", ") IS NULL", "len"), ("(ttl BETWEEN ", " AND 3)", "1"),
                ("sum(", ")", "len"), ("len / (", " - 80)", "srcPort"),
            )
        )  # fmt: skip
        expression = f"{before * times}{inner}{behind * times}"
        if self.random.random() < 0.3:
            return f"SELECT * FROM {'(SELECT * FROM ' * times}A{')' * times}"
        if self.random.random() < 0.2:
            return f"SELECT ts FROM {'(' * times}A{' UNION B)' * times}"
        places = ("SELECT {} AS v FROM A", "SELECT ts FROM A WHERE {}", "SELECT sum({}) AS v [RANGE 1 s] FROM A",
                  "SELECT count(*) AS n [RANGE 1 s] FROM A GROUP BY {}", "SELECT count(*) + {} AS v [RANGE 1 s] FROM A",
                  "SELECT count(*) AS n [RANGE 1 s] FROM A HAVING {}", "SELECT count(*) AS n [RANGE 1 s, WA {}] FROM A",
                  "SELECT x.ts FROM A AS x [RANGE 1 s] JOIN B AS y [RANGE 1 s] ON x.srcIP = y.srcIP AND {}",
                  "SELECT ts FROM A ORDER BY ts, {}")  # fmt: skip
        return self.one(places).format(expression)

    def wide(self) -> str:
        """Much of something beside something."""
        times = self.size()
        numbers = [f"{self.number(1)}" for _ in range(times)]
        named = ", ".join(f"{number} AS c{place}" for place, number in enumerate(numbers))
        compared = [f"{number} <> {place}" for place, number in enumerate(numbers)]
        inputs = ", ".join(f"{self.one('AB')} AS i{place} [RANGE 1 s]" for place in range(times))
        equal = " AND ".join(f"i{place}.srcIP = i0.srcIP" for place in range(1, times)) or "true"
        joins = "".join(
            f" {self.one(('', 'LEFT ', 'SEMI '))}JOIN A AS i{place} [RANGE 1 s] ON i{place}.srcIP = i0.srcIP"
            for place in range(1, min(times, 60))
        )
        calls = ", ".join(
            f"{self.one(('sum', 'variance', 'max', 'first', 'median', 'approx_count_distinct'))}({number}) AS c{place}"
            for place, number in enumerate(numbers)
        )
        tests = " AND ".join(
            f"EXISTS (SELECT * FROM B AS y{place} [RANGE 1 s] WHERE y{place}.srcIP = x.srcIP)" for place in range(times)
        )
        return self.random.choice(
            (
                f"SELECT {named} FROM A",
                f"SELECT {calls} [RANGE 1 s] FROM A",
                f"SELECT {calls} [RANGE 10 rows] FROM A",
                f"SELECT count(*) [RANGE 1 s] FROM A GROUP BY {named}",
                f"SELECT DISTINCT {named} FROM A UNION B",
                f"SELECT {self.one((' + ', ' * ', ' | ', ' - ', ' + 1.5 * ')).join(numbers)} AS v FROM A",
                f"SELECT count(*) + {' + '.join(['len'] * times)} AS v [RANGE 1 s] FROM A GROUP BY len",
                f"SELECT {' + '.join(f'sum({number})' for number in numbers)} AS v [RANGE 1 s] FROM A",
                f"SELECT ts FROM A WHERE {self.one((' AND ', ' OR ')).join(compared)}",
                (
                    f"SELECT x.ts FROM A AS x [RANGE 1 s] JOIN B AS y [RANGE 1 s] ON x.srcIP = y.srcIP AND "
                    f"x.len IN ({', '.join(map(str, range(times)))})"
                ),
                f"SELECT ts FROM A WHERE len IN ({', '.join(map(str, range(times * 4)))})",
                f"SELECT i0.ts FROM {inputs} WHERE {equal}",
                f"SELECT i0.ts FROM A AS i0 [RANGE 1 s]{joins}",
                f"SELECT ts FROM {' UNION '.join(self.one('ABC') for _ in range(times))}",
                f"SELECT ts FROM A AS x [RANGE 1 s] WHERE {tests}",
                f"SELECT ts, len FROM A ORDER BY ts, {', '.join(numbers)}",
                (
                    f"SELECT count(*) [RANGE 5 rows, SLIDE 5 rows, PA {', '.join(_INTEGERS * (times // 10 + 1))}] "
                    f"FROM A GROUP BY {', '.join(numbers)}"
                ),
                (
                    f"SELECT x.ts, {', '.join(f'x.{name} AS x{name}, y.{name} AS y{name}' for name in _INTEGERS)} FROM "
                    f"(SELECT *, {named} FROM A) AS x [RANGE 1 s], B AS y [RANGE 1 s] WHERE {' AND '.join(compared)}"
                ),
            )
        )

    def stages(self) -> str:
        """Streams that are read through one another, once or several times."""
        firsts = {
            "SELECT ts AS t, srcIP, len FROM A": "t",
            "SELECT srcIP, count(*) AS len [RANGE 1 s] FROM A GROUP BY srcIP": "window_end",
            "SELECT ts AS t, srcIP, count(*) AS len FROM A GROUP BY ts, srcIP": "t",
        }
        first = self.one(list(firsts))
        self.source = below = _Source("", ("len",), ("srcIP",), firsts[first])
        text = self.create((first, below))
        steps = ("select", "double", "group", "join", "union", "semi")
        step = self.one((*steps, "mixed", "mixed"))
        for _ in range(self.size()):
            text += self.create((self.stage(self.one(steps) if step == "mixed" else step, below.time), below))
        return f"{text}SELECT * FROM {self.created[-1].text}{self.where(1)}"

    def stage(self, step: str, time: str) -> str:
        names = [stream.text for stream in self.created]
        below, other, window = names[-1], self.one((names[-1], names[-1], *names)), f"[RANGE 1 s, WA {time}]"
        match step:
            case "select":
                return f"SELECT {time}, srcIP, len + 1 AS len FROM {below}{self.where(1)}"
            case "double":
                return f"SELECT {time}, srcIP, len * len + len AS len FROM {below}"
            case "group":
                keys, calls = f"srcIP, {time} AS {time}", "sum(len) AS len"
                if time == "window_end":
                    keys, calls = self.one(("srcIP", "srcIP, len / 10")), f"{calls} {window}"
                return f"SELECT {keys if time == 't' else 'srcIP'}, {calls} FROM {below} GROUP BY {keys}"
            case "union":
                return f"SELECT * FROM {below} UNION {other}"
            case "semi":
                test = f"SELECT * FROM {other} AS y {window} WHERE y.srcIP = x.srcIP"
                return f"SELECT {time}, srcIP, len FROM {below} AS x {window} WHERE EXISTS ({test})"
        shown = f"x.{time} AS {time}, x.srcIP AS srcIP, y.len AS len"
        return f"SELECT {shown} FROM {below} AS x {window}, {other} AS y {window} WHERE x.srcIP = y.srcIP"

    def damaged(self) -> str:
        text = self.random.choice((self.script, self.script, self.deep, self.wide, self.stages))()
        tokens = re.findall(r"\w+|\s+|.", text[:4000], re.DOTALL)
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randrange(len(tokens))
            match self.random.randrange(5):
                case 0:
                    del tokens[at : at + self.random.choice((1, 1, 1, 5))]
                case 1:
                    tokens.insert(at, self.one((*_DAMAGE, *_LITERALS)))
                case 2:
                    tokens[at] = self.one((*_DAMAGE, *_LITERALS, self.one(_OTHERS)))
                case 3:
                    other = self.random.randrange(len(tokens))
                    tokens[at], tokens[other] = tokens[other], tokens[at]
                case _:
                    tokens[at:at] = tokens[at : at + 9]
            tokens = tokens or [" "]
        return "".join(tokens)

    def noise(self) -> str:
        words = (*_DAMAGE, *_LITERALS, *_INTEGERS, *_NAMES)
        return self.many(lambda: self.one(words), self.size(), self.one((" ", "")))


SHAPES: dict[str, Callable[[_Texts], str]] = {
    "script": _Texts.script,
    "deep": _Texts.deep,
    "wide": _Texts.wide,
    "stages": _Texts.stages,
    "damaged": _Texts.damaged,
    "noise": _Texts.noise,
}
