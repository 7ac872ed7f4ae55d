"""Random queries, as text: what is drawn is valid, and what runs on captures now."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st

Text = st.SearchStrategy[str]

INTEGERS = ("len", "ip_len", "payload_len", "ttl", "tos", "srcPort", "destPort", "proto", "tcp_flags", "ip_version",
            "fragment", "vlan", "icmp_type", "icmp_code")  # fmt: skip
NULLABLE = "len / (destPort - 80)"
KEYS = ("srcIP", "destIP", "proto", "destPort", "vlan", "srcMAC", "ip_version", "link", "fragment",
        "srcIP IN 10.0.0.0/30", "len > 100", "len / 100", NULLABLE, "ts % 7", "ts / 20",
        "len / 2.5")  # fmt: skip


TIMES = ("ts % 10 < 5", "ts >= '2024-05-01T12:00:30Z'", "ts < 1714564860", "ts / 7 % 2 = 0",
         "ts + 5 seconds > '2024-05-01T14:00:59.5+02:00'")  # fmt: skip


@dataclass(frozen=True)
class Columns:
    """What an input of FROM has."""

    integers: tuple[str, ...] = INTEGERS
    addresses: tuple[str, ...] = ("srcIP", "destIP")
    keys: tuple[str, ...] = KEYS
    packets: bool = True
    overflow: bool = True  # integers that leave 64 bits now and then


PACKETS = Columns()
EXACT = Columns(overflow=False)
SUBQUERY = Columns(
    integers=("destPort", "bits", "proto"),
    addresses=("srcIP", "destIP"),
    keys=("srcIP", "destIP", "proto", "bits / 1000", "destPort", "ts / 20", "srcIP IN 10.0.0.0/30"),
    packets=False,
)


def integers(columns: Columns) -> Text:
    leaf = st.one_of(st.sampled_from(columns.integers), st.integers(0, 300).map(str))
    field = st.sampled_from(columns.integers)
    # Of some values: where what is drawn leaves 64 bits depends on the packet, or on the sum.
    overflowing = st.one_of(
        st.builds("({} * {})".format, field, st.sampled_from(("20000000000000000", "4000000000000000000"))),
        st.builds("({} << {})".format, field, st.integers(45, 62)),
        st.builds("(-9223372036854775800 - {})".format, field),
    )
    divisor = st.one_of(st.sampled_from(("7", "2", "100", "(-3)")), field.map(lambda f: f"({f} - 80)"))

    def multiplied(inner: Text) -> Text:
        return st.builds("({} * {})".format, inner, st.sampled_from(("2", "8", "(-1)")))

    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from("+-&|^"), inner),
            st.integers(0, 4 if columns.overflow else 3).flatmap(
                lambda n: overflowing if n == 4 else multiplied(inner)
            ),
            st.builds("({} {} {})".format, inner, st.sampled_from("/%"), divisor),
            st.builds("({} {} {})".format, field, st.sampled_from(("<<", ">>")), st.integers(0, 9)),
            st.builds("({}{})".format, st.sampled_from("-~"), inner),
        ),
        max_leaves=3,
    )


def numbers(columns: Columns) -> Text:
    whole = integers(columns)
    return st.one_of(
        whole, whole, st.builds("({} / 2.5)".format, whole), st.builds("(0.1 * {})".format, whole),
        st.builds("({} + 0.5)".format, whole),
    )  # fmt: skip


def conditions(columns: Columns) -> Text:
    whole = integers(columns)
    compared = st.sampled_from(("=", "<>", "<", "<=", ">", ">=", "!="))
    address = st.sampled_from(columns.addresses)
    hosts = ("10.0.0.1", "10.0.0.2", "2001:db8::1", "'10.0.1.1'", "::ffff:10.0.0.2")
    prefixes = ("10.0.0.0/30", "10.0.0.0/8", "2001:db8::/32", "0.0.0.0/0", "::/0", "::ffff:0:0/96")
    leaf = st.one_of(
        st.builds("{} {} {}".format, whole, compared, whole),
        st.builds("{} {} {}".format, whole, compared, st.sampled_from(("0", "80", "100", "60.5"))),
        st.builds("{} {} {}".format, address, compared, st.sampled_from(hosts)),
        st.builds("{} {}IN {}".format, address, st.sampled_from(("", "NOT ")), st.sampled_from(prefixes)),
        st.builds("{} {}IN (10.0.0.2, {})".format, address, st.sampled_from(("", "NOT ")), st.sampled_from(prefixes)),
        st.builds("{} {}IN (6, 80, {})".format, whole, st.sampled_from(("", "NOT ")), st.integers(0, 200)),
        st.builds("{} {}BETWEEN {} AND {}".format, whole, st.sampled_from(("", "NOT ")), whole, st.integers(0, 400)),
        st.builds("({}) IS {}NULL".format, whole, st.sampled_from(("", "NOT "))),
        st.sampled_from(TIMES),
    )  # fmt: skip
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("(NOT {})".format, inner),
        ),
        max_leaves=3,
    )


def aggregates(columns: Columns, ordered: bool = True) -> Text:
    whole, number = integers(columns), numbers(columns)
    anything = st.one_of(number, st.sampled_from((*columns.addresses, "ts")))
    names = ("sum", "avg", "variance", "stddev", "median")
    choices = [
        st.just("count(*)"),
        st.builds("count({})".format, anything),
        st.builds("{}({})".format, st.sampled_from(names), number),
        st.builds("{}({})".format, st.sampled_from(("min", "max")), anything),
        st.builds("{}({})".format, st.sampled_from(("bit_or", "bit_and")), whole),
        st.builds("count(distinct {})".format, anything),
        st.builds("count(distinct {}, {})".format, st.sampled_from(columns.addresses), whole),
        st.builds("quantile({}, {})".format, number, st.sampled_from(("0", "0.25", "0.5", "0.9", "0.999", "1"))),
    ]
    places = st.integers(1, 4)
    choices += [
        st.builds("{}({}, {})".format, st.sampled_from(("heavy_hitter", "heavy_hitter_count")), anything, places),
        st.builds("approx_count_distinct({})".format, anything),
        st.builds("approx_count_distinct({}, {})".format, st.sampled_from(columns.addresses), whole),
        st.builds("approx_quantile({}, {})".format, number, st.sampled_from(("0", "0.5", "0.9", "1"))),
    ]
    if ordered:
        choices.append(st.builds("{}({})".format, st.sampled_from(("first", "last")), anything))
    return st.one_of(choices)


windows = st.one_of(
    st.sampled_from(("RANGE 10 seconds, SLIDE 5 seconds, WA ts", "RANGE 7 s, SLIDE 3 s", "RANGE TUMBLING 10 seconds",
                     "SLIDE 20 s, WA ts, RANGE 1 minute", "RANGE 3 seconds, SLIDE 10 seconds", "RANGE 30, SLIDE 30",
                     "RANGE 1500 ms, SLIDE 500 ms", "RANGE ALL, SLIDE 10 seconds", "RANGE ALL, SLIDE 1 minute, WA ts",
                     "RANGE 5 minutes, SLIDE 1 minute", "RANGE 1 day")),
    st.builds("RANGE {} s, SLIDE {} s, WATTR ts".format, st.integers(1, 40), st.integers(3, 40)),
)  # fmt: skip

# Numbers that progress by leaps, and sizes that are no multiples of these.
LEAPS = ("ts / 20 * 20", "ts / 7 * 10 + 3", "(ts / 1 >> 3) * 8", "ts / 1 * 3", "5 * (ts / 500 ms)",
         "ts / 10 * 7 / 3 * 2 - 1", "(ts + 3 seconds) / 15 * 4")  # fmt: skip
leaping = st.builds(
    "{}, WA {}".format,
    st.one_of(
        st.builds("RANGE {}, SLIDE {}".format, st.integers(1, 90), st.integers(3, 60)),
        st.builds("{} {}".format, st.sampled_from(("RANGE", "RANGE TUMBLING", "RANGE ALL, SLIDE")), st.integers(3, 60)),
    ),
    st.sampled_from(LEAPS),
)

SELECTED = "SELECT ts, srcIP, destIP, destPort, proto, len * 8 AS bits FROM {} WHERE {}"


@st.composite
def froms(draw: st.DrawFn) -> tuple[str, Columns]:
    stream = draw(st.sampled_from(("A", "B", "A UNION B", "(B UNION A)")))
    if draw(st.integers(0, 3)):
        return stream, PACKETS
    return f"({SELECTED.format(stream, draw(conditions(PACKETS)))}) AS sub", SUBQUERY


@st.composite
def selections(draw: st.DrawFn) -> str:
    """A query without windows and groups."""
    source, columns = draw(froms())
    items = draw(st.lists(st.one_of(numbers(columns), conditions(columns), st.sampled_from(columns.keys)), max_size=4))
    listed = ", ".join(f"{item} AS x{i}" for i, item in enumerate(items))
    distinct = draw(st.booleans()) and draw(st.booleans())
    head = "DISTINCT ts / 10 AS tens" if distinct else draw(st.sampled_from(("ts", "ts", "*")))
    text = f"SELECT {head}{', ' if listed else ''}{listed} FROM {source}"
    return text + (f" WHERE {draw(conditions(columns))}" if draw(st.booleans()) else "")


@st.composite
def groupings(draw: st.DrawFn, windowed: bool | None = None) -> str:
    """A query with aggregates, in windows or over what progresses."""
    source, columns = draw(froms())
    windowed = draw(st.integers(0, 3)) > 0 if windowed is None else windowed
    keys = draw(st.lists(st.sampled_from(columns.keys), max_size=3, unique=True))
    if not windowed:
        keys.insert(draw(st.integers(0, len(keys))), draw(st.sampled_from(("ts", "ts / 60", "ts / 10"))))
        keys = list(dict.fromkeys(keys))
    # Over a derived stream the window's attribute is what orders its rows.
    values = draw(st.lists(aggregates(columns, windowed or columns.packets), min_size=1, max_size=4))
    shown = [(key, f"k{i}") for i, key in enumerate(keys) if draw(st.integers(0, 4))]
    shown += [(value, f"v{i}") for i, value in enumerate(values)]
    if draw(st.integers(0, 4)) == 0:
        shown.append(("100.0 * count(*) / total(count(*))", "share"))
    window = f" [{draw(st.one_of(windows, windows, leaping))}]" if windowed else ""
    text = f"SELECT {', '.join(f'{item} AS {name}' for item, name in shown)}{window} FROM {source}"
    if draw(st.booleans()):
        text += f" WHERE {draw(conditions(columns))}"
    if keys:
        text += f" GROUP BY {', '.join(keys)}"
    if draw(st.integers(0, 3)) == 0:
        having = ("count(*) > 1", "sum(proto) >= 0.2 * total(sum(proto))", "max(destPort) < 443 OR count(*) = 1",
                  "NOT min(proto) = 6")  # fmt: skip
        text += f" HAVING {draw(st.sampled_from(having))}"
    # A place among the others is what the language leaves open of a null key.
    if keys and NULLABLE not in keys and draw(st.integers(0, 2)) == 0:
        order = draw(st.sampled_from(("count(*) DESC", "sum(proto), count(*) DESC", "max(destPort) DESC")))
        text += f" ORDER BY {order}"
        if draw(st.booleans()):
            text += f" LIMIT {draw(st.integers(1, 4))}"
    return text


STAGE = Columns(integers=("n", "b", "proto"), addresses=("srcIP",), keys=("srcIP", "proto", "n > 2"), packets=False)


@st.composite
def stages(draw: st.DrawFn) -> str:
    """An aggregate over the rows of an aggregate."""
    source, columns = draw(froms())
    inner = draw(st.sampled_from(("RANGE 1 s", "RANGE 3 s", "RANGE 10 s, SLIDE 4 s", "RANGE 2 s, SLIDE 5 s")))
    text = f"CREATE STREAM s AS SELECT srcIP, proto, count(*) AS n, sum(destPort) AS b [{inner}] FROM {source}"
    text += (f" WHERE {draw(conditions(columns))}" if draw(st.booleans()) else "") + " GROUP BY srcIP, proto"
    text += draw(st.sampled_from(("", " HAVING count(*) > 1", " ORDER BY count(*) DESC, srcIP LIMIT 2"))) + "; "
    attribute = draw(st.sampled_from(("window_start", "window_end")))
    outer = ("RANGE 20 s", "RANGE 30 s, SLIDE 10 s", "RANGE 7 s, SLIDE 3 s", "RANGE ALL, SLIDE 20 s")
    over = f"{draw(st.sampled_from(outer))}, WA {attribute}"
    if draw(st.integers(0, 3)) == 0:
        over = draw(leaping).replace("ts", attribute)
    keys = draw(st.lists(st.sampled_from(STAGE.keys), max_size=2, unique=True))
    shown = [f"{key} AS k{i}" for i, key in enumerate(keys)]
    shown += [f"{value} AS v{i}" for i, value in enumerate(draw(st.lists(stage_values, min_size=1, max_size=3)))]
    text += f"SELECT {', '.join(shown)} [{over}] FROM s"
    text += draw(st.sampled_from(("", " WHERE n > 1", " WHERE b % 2 = 1", " WHERE b * 50000000000000 > n")))
    return text + (f" GROUP BY {', '.join(keys)}" if keys else "")


stage_values = st.sampled_from(("count(*)", "sum(n)", "max(b)", "min(window_start)", "avg(n)", "count(distinct srcIP)",
                                "median(b)", "sum(b / n)", "max(srcIP)", "count(b * 50000000000000)",
                                "sum(n << 59)"))  # fmt: skip


@st.composite
def nested(draw: st.DrawFn) -> str:
    """Streams of streams: two of windows, met in a union or a join, and aggregated once or twice more."""
    text = ""
    for name in ("p", "q"):
        window = draw(
            st.sampled_from(("RANGE 3 s", "RANGE 10 s, SLIDE 4 s", "RANGE 2 s, SLIDE 5 s", "RANGE 5 s, PA srcIP"))
        )
        source, columns = draw(froms())
        where = f" WHERE {draw(conditions(columns))}" if draw(st.booleans()) else ""
        text += (
            f"CREATE STREAM {name} AS SELECT srcIP, count(*) AS n, sum(destPort) AS b [{window}] FROM {source}{where}"
        )
        text += " GROUP BY srcIP; "
    over = draw(
        st.sampled_from(("RANGE 20 s", "RANGE 30 s, SLIDE 10 s", "RANGE 7 s, SLIDE 3 s", "RANGE ALL, SLIDE 20 s"))
    )
    values = ", ".join(
        f"{value} AS v{i}" for i, value in enumerate(draw(st.lists(stage_values, min_size=1, max_size=3)))
    )
    if draw(st.booleans()):
        bands = (draw(st.integers(1, 12)), draw(st.integers(1, 12)))
        met = "SELECT p.window_end AS t, p.srcIP AS srcIP, p.window_start AS window_start, p.n AS n, q.b AS b FROM "
        met += f"p [RANGE {bands[0]} s, WA window_end], q [RANGE {bands[1]} s, WA window_end] WHERE p.srcIP = q.srcIP"
        return f"{text}SELECT srcIP, {values} [{over}, WA t] FROM ({met}) AS met GROUP BY srcIP"
    attribute = draw(st.sampled_from(("window_start", "window_end")))
    if draw(st.booleans()):
        return f"{text}SELECT srcIP, {values} [{over}, WA {attribute}] FROM p UNION q GROUP BY srcIP"
    again = f"SELECT srcIP, sum(n) AS n, max(b) AS b [{over}, WA {attribute}] FROM p UNION q GROUP BY srcIP"
    text += f"CREATE STREAM r AS {again}; "
    return f"{text}SELECT {values} [RANGE 40 s, SLIDE 20 s, WA window_end] FROM r WHERE n > 1"


@st.composite
def unlike(draw: st.DrawFn) -> str:
    """Windows over a union whose members progress in ways of their own."""
    of = ", ".join(f"{value} AS v{i}" for i, value in enumerate(draw(st.lists(unlike_values, min_size=1, max_size=3))))
    window = draw(leaping)
    members = (
        f"(SELECT {draw(st.sampled_from((*LEAPS, 'ts / 1')))} AS t, srcIP, len FROM {name} "
        f"WHERE {draw(conditions(PACKETS))})"
        for name in ("A", "B", "A UNION B")[: draw(st.integers(2, 3))]
    )
    over = f"{window.partition(', WA')[0]}, WA t"
    key = draw(st.sampled_from(("srcIP", "len > 100")))
    return f"SELECT {key} AS k, {of} [{over}] FROM {' UNION '.join(members)} GROUP BY {key}"


unlike_values = st.sampled_from(("count(*)", "sum(len)", "max(t)", "count(distinct len)", "median(len)", "min(srcIP)"))


@st.composite
def distincts(draw: st.DrawFn) -> str:
    source, columns = draw(froms())
    keys = draw(st.lists(st.sampled_from(columns.keys), min_size=1, max_size=3, unique=True))
    shown = ", ".join(f"{key} AS k{i}" for i, key in enumerate(keys))
    text = f"SELECT DISTINCT {shown} [{draw(windows)}] FROM {source}"
    return text + (f" WHERE {draw(conditions(columns))}" if draw(st.booleans()) else "")


PACKET_SIDES = ("A", "B", "A UNION B", "B", "A")
JOIN_KEYS = (
    ("srcIP", "destIP"), ("srcIP", "srcIP"), ("destPort", "srcPort"), ("proto", "proto"), ("len", "ip_len + 14"),
    ("len / (destPort - 80)", "len / 2"), ("ts / 3", "ts / 3"), ("link", "link"), ("len / 2.5", "ip_len"), ("ts", "ts"),
)  # fmt: skip


@st.composite
def joins(draw: st.DrawFn, of: tuple[int, ...] = (2, 2, 2, 3), windowless: bool = False) -> str:
    """A join of packets, unions, subqueries or windowed counts; its rows, or aggregates over them. `windowless`: an
    equality of times stands for the windows of its inputs."""
    names = ("x", "y", "z")[: draw(st.sampled_from(of))]
    tumbling = draw(st.integers(0, 2)) == 0
    timed = draw(_timed) if windowless or draw(st.integers(0, 5)) == 0 else None
    written = []
    for name in names:
        window = "" if tumbling or timed else f" [RANGE {draw(st.integers(1, 25))} s, WA ts]"
        written.append(f"{draw(_join_inputs)} AS {name}{window}")
    last = f" [RANGE TUMBLING {draw(st.integers(1, 25))} s, WA ts]" if tumbling and not timed else ""
    conditions = []
    for before, name in pairwise(names):
        if timed:
            conditions.append(f"{timed.format(before)} = {timed.format(name)}")
        for left, right in draw(st.lists(st.sampled_from(JOIN_KEYS), min_size=1, max_size=2, unique=True)):
            conditions.append(f"{_of(before, left)} = {_of(name, right)}")
    if len(names) == 3 and draw(st.booleans()):
        conditions.append("x.proto = z.proto")
    conditions += draw(st.lists(st.sampled_from(("x.len > 60", "y.proto <> 17", "x.len <= y.len", "x.ts < y.ts",
                                                 "x.len * y.len * 1000000000000000 > 7",
                                                 "NOT (x.srcPort = 80 AND y.destPort = 80)")), max_size=2))  # fmt: skip
    if draw(st.booleans()):
        source = ", ".join(written) + last + " WHERE " + " AND ".join(conditions)
    else:
        source = " JOIN ".join(written[:-1]) + f" ON {conditions[0]}" if len(names) == 3 else written[0]
        source += f" JOIN {written[-1]}{last} ON {' AND '.join(conditions)}"
    head, hints = draw(st.sampled_from(_JOIN_HEADS)), []
    if draw(st.booleans()):
        orders = draw(st.lists(st.permutations(names), min_size=1, max_size=3, unique_by=lambda order: order[0]))
        hints += [f"probe({', '.join(order)})" for order in orders]
    if len(names) == 2 and timed is None and draw(st.integers(0, 2)) == 0:
        hints.append("algorithm(punctuated)")
    if hints:
        at = head.rindex("SELECT ") + len("SELECT ")
        head = f"{head[:at]}/*+ {' '.join(hints)} */ {head[at:]}"
    return head.format(source)


@st.composite
def outer_joins(draw: st.DrawFn, windowless: bool = False) -> str:
    """Joins in which a row counts that meets nobody."""
    kind = draw(st.sampled_from(("LEFT", "RIGHT OUTER", "FULL", "SEMI", "ANTI", "EXISTS", "NOT EXISTS")))
    left, right = draw(_join_inputs), draw(_join_inputs)
    windows = [f"[RANGE {draw(st.integers(1, 15))} s, WA ts]" for _ in range(2)]
    if draw(st.integers(0, 2)) == 0:
        windows = ["", f"[RANGE TUMBLING {draw(st.integers(1, 15))} s]"]
    keys = draw(st.lists(st.sampled_from(JOIN_KEYS), max_size=2, unique=True))
    conditions = [f"{_of('x', a)} = {_of('y', b)}" for a, b in keys]
    if windowless or draw(st.integers(0, 5)) == 0:
        windows = ["", ""]
        conditions.append(draw(st.sampled_from(("x.ts = y.ts", "y.ts / 3 = x.ts / 3", "x.ts + 1 second = y.ts"))))
    rest = ("x.len > 60", "y.proto <> 17", "x.len <= y.len", "x.len * y.len * 1000000000000000 > 7")
    conditions += draw(st.lists(st.sampled_from(rest), max_size=2))
    on = " AND ".join(conditions or ["x.proto <> y.proto"])
    over = draw(st.sampled_from(("", " WHERE {}len > 50", " WHERE {}proto <> 6 AND {}ts % 3 < 2")))
    if "EXISTS" in kind:
        where = f"{kind} (SELECT y.ts FROM {right} AS y {windows[1]} WHERE {on})"
        where += over.replace(" WHERE ", " AND ").format("", "") if over else ""
        head = draw(st.sampled_from(("ts, srcIP, len", "*", "proto, count(*) [RANGE 9 s, WA ts]")))
        return f"SELECT {head} FROM {left} AS x {windows[0]} WHERE {where}" + (
            " GROUP BY proto" if "count" in head else ""
        )
    source = f"{left} AS x {windows[0]} {kind} JOIN {right} AS y {windows[1]} ON {on}"
    seen = {"RIGHT OUTER": "y", "FULL": draw(st.sampled_from("xy"))}.get(kind, "x")
    shown = (
        f"{seen}.ts, {seen}.srcIP" if kind in ("SEMI", "ANTI") else "x.ts, y.ts, x.len - y.len AS less, x.srcIP, y.link"
    )
    grouped = f"{seen}.proto, count(*), max({seen}.len) AS m [RANGE 9 s, SLIDE 3 s, WA {seen}.ts]"
    if kind != "FULL" and draw(st.integers(0, 2)) == 0:
        return f"SELECT {grouped} FROM {source}{over.format(seen + '.', seen + '.')} GROUP BY {seen}.proto"
    return f"SELECT {shown} FROM {source}{over.format(seen + '.', seen + '.')}"


@st.composite
def nested_joins(draw: st.DrawFn) -> str:
    """Joins of all kinds of three inputs or four, from the left; rows, or aggregates over them."""
    names = "xyzw"[: draw(st.sampled_from((3, 3, 4)))]
    size = f"[RANGE TUMBLING {draw(st.integers(1, 15))} s]" if draw(st.integers(0, 3)) == 0 else None
    text, seen, whole, commas = "", [*names[:0]], [*names[:0]], False
    for name in names:
        last = name == names[-1]
        window = f"[RANGE {draw(st.integers(1, 12))} s, WA ts]" if size is None else size if last else ""
        written = f"{draw(_join_inputs)} AS {name} {window}"
        if not seen or (" JOIN " not in text and not last and draw(st.integers(0, 3)) == 0):
            commas = bool(seen)
            text, seen, whole = f"{text}, {written}" if seen else written, [*seen, name], [*whole, name]
            continue
        kinds = ("LEFT", "LEFT", "RIGHT", "SEMI", "ANTI", "FULL", "FULL")
        kind = draw(st.sampled_from((*kinds, "INNER") if " JOIN " in text or not last else kinds))
        other = seen[-1] if commas else draw(st.sampled_from(seen))
        keys = draw(st.lists(st.sampled_from(JOIN_KEYS), min_size=1, max_size=2, unique=True))
        rest = (f"{other}.len > 60", f"{name}.proto <> 17", f"{other}.len <= {name}.len")
        conditions = [f"{_of(other, a)} = {_of(name, b)}" for a, b in keys]
        conditions += draw(st.lists(st.sampled_from(rest), max_size=1))
        text += f" {kind} JOIN {written} ON {' AND '.join(conditions)}"
        if kind not in ("SEMI", "ANTI"):
            seen = [*seen, name]
            whole = {"LEFT": whole, "RIGHT": [name], "FULL": []}.get(kind, [*whole, name])
    text += draw(st.sampled_from(("", f" WHERE {seen[0]}.len > 50", f" WHERE {seen[-1]}.proto <> 6")))
    if whole and draw(st.integers(0, 2)) == 0:
        of = draw(st.sampled_from(whole))
        head = f"{of}.proto, count(*), max({of}.len) AS m [RANGE 9 s, SLIDE 3 s, WA {of}.ts]"
        return f"SELECT {head} FROM {text} GROUP BY {of}.proto"
    return f"SELECT {', '.join(f'{name}.ts, {name}.len' for name in seen)} FROM {text}"


_JOIN_HEADS = (
    "SELECT x.ts, y.ts, x.srcIP, y.len + x.len AS total FROM {}",
    "SELECT x.proto, y.destIP, x.len - y.len AS less FROM {}",
    "SELECT x.ts, y.ts, x.len * y.len * 1000000000000000 AS far FROM {}",
    "SELECT x.proto, count(x.len * y.len * 1000000000000000) AS n [RANGE 9 s, WA x.ts] FROM {} GROUP BY x.proto",
    "SELECT x.proto, sum(y.len) AS b, max(x.ts) AS t [RANGE 9 s, SLIDE 3 s, WA x.ts] FROM {} GROUP BY x.proto",
    "SELECT count(*) [RANGE 10 s, WA y.ts] FROM {}",
    "SELECT y.proto, count(*) AS n, min(x.len) AS m [RANGE 20, SLIDE 7, WA x.ts / 3 * 4 + 1] FROM {} GROUP BY y.proto",
    "SELECT x.ts, y.ts / 10 AS tens, count(*) FROM {} GROUP BY x.ts, y.ts / 10",
    "SELECT b, max(a) AS a [RANGE 15 s, WA t] FROM (SELECT x.ts AS t, x.len AS a, y.tos AS b FROM {}) AS p GROUP BY b",
)

_join_inputs = st.one_of(
    st.sampled_from(PACKET_SIDES),
    st.sampled_from(PACKET_SIDES),
    st.builds(
        "(SELECT *, len AS size FROM {} WHERE {})".format, st.sampled_from(PACKET_SIDES),
        st.sampled_from(("len > 60", "proto = 6", "ts % 10 < 5")),
    ),
)  # fmt: skip


def _of(name: str, expression: str) -> str:
    """An expression whose fields are those of one input."""
    return re.sub(r"\b([a-zA-Z_]+)\b", rf"{name}.\1", expression)


_timed = st.sampled_from(
    ("{}.ts", "{}.ts", "{}.ts / 3", "({}.ts + 500 ms) / 2", "{}.ts / 500 ms * 2 + 1", "{}.ts - 3 seconds")
)


def windowless() -> Text:
    return st.one_of(joins(windowless=True), joins(windowless=True), outer_joins(windowless=True))


queries = st.one_of(
    selections(), groupings(True), groupings(True), groupings(False), stages(), distincts(), unlike()
)  # fmt: skip
