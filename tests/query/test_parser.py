from __future__ import annotations

import subprocess
import sys
import time
from decimal import Decimal
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lowmark.query.catalog import unit_ns
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.parse.parser import parse

# The papers' queries as they are printed, with their odd forms.
PRINTED = [
    "SELECT count (*) [RANGE 1 minute, SLIDE 1 minute, WA ts]\nFROM Control union Main1 union Main2",
    'SELECT srcIP, ts, count (*) FROM Main1 WHERE srcIP = "202.101.0.0" or srcIP = "202.101.0.1" GROUP BY srcIP, ts',
    "SELECT * FROM Main1 [WA ts, RANGE 3 min],\nMain2 [WA ts, RANGE 2 min] WHERE Main1.srcIP = Main2.destIP;",
    "Select srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute, WATTR ts]\nFrom Main Group By srcIP",
    "SELECT srcIP, max(length) [RANGE 1000 rows, SLIDE 10 rows, WA row-num, PA srcIP] FROM Main",
    "SELECT srcIP, max(length) [RANGE 1000 rows, SLIDE 10 rows, WA row-num] FROM Main GROUP-BY srcIP",
    "SELECT srcIP, count(*) [RANGE ALL, SLIDE 1 minute, WA ts] FROM Main1 GROUP BY srcIP",
    "SELECT max(length)\n[RANGE 5 minutes, RATTR ts, SLIDE 1 row, SATTR row-num] FROM Main",
    "SELECT count(*)\n[RANGE 5 minutes, RATTR ts, SLIDE 5 rows, SATTR rank(ts)] FROM Main",
    "SELECT Main1.srcIP, Main2.ts FROM Main1, Main2\n[RANGE TUMBLING 5 minutes, WA ts], WHERE Main1.ts < Main2.ts",
    "SELECT srcIP, count(*) [RANGE 9 minutes, WA ts] FROM M GROUP BY srcIP HAVING count(*) >= 0.05 * total(count(*))",
    "SELECT srcIP, sum(len) [RANGE 10 seconds, SLIDE 1 second, WA ts] FROM packets GROUPBY srcIP",
    "SELECT count(*)\n[RANGE 10 sec, SLIDE 1 sec, WA ts]\nFROM (Main2 ∪ (Main1 ∪ Control))\nGROUP-BY srcIP",
    (
        "CREATE STREAM h AS SELECT S0.ts AS a FROM S0 [RANGE 2 minutes], S1 [RANGE 2 minutes]\n"
        "WHERE S0.tcp_flags & 18 = 2 and S1.tcp_flags & 18 = 18;\nSELECT a, count(*) FROM h GROUP BY a"
    ),
    "SELECT M1.srcIP FROM A UNION B as M1, C UNION D as M2\n[RANGE TUMBLING 10 seconds, WA ts],\nWHERE M1.ttl = M2.ttl",
    "SELECT minute, count(*) AS n FROM Main WHERE proto = 17 GROUP BY ts/60 AS minute HAVING count(*) > 2",
    "SELECT big.port FROM (SELECT destPort AS port FROM A UNION B WHERE proto = 6) AS big WHERE big.port > 800",
]


def select(text: str) -> s.Select:
    (statement,) = parse(text).statements
    assert isinstance(statement, s.Select)
    return statement


def expression(text: str) -> s.Expression | s.Star:
    return select(f"SELECT {text} FROM M").items[0].expression


def window(text: str) -> s.WindowClause:
    found = select(f"SELECT count(*) [{text}] FROM M").window
    assert found is not None
    return found


def show(node: s.SyntaxNode) -> str:
    """A prefix form in which binding can be read off."""
    match node:
        case s.FieldRef(source, name):
            return f"{source.text}.{name.text}" if source else name.text
        case s.Binary(operator, left, right) | s.Comparison(operator, left, right):
            return f"({operator} {show(left)} {show(right)})"
        case s.Unary(operator, operand):
            return f"({operator} {show(operand)})"
        case s.And(operands) | s.Or(operands):
            return f"({type(node).__name__.lower()} {' '.join(map(show, operands))})"
        case s.Not(operand):
            return f"(not {show(operand)})"
        case s.In(operand, choices, negated):
            return f"({'not-' * negated}in {show(operand)} {' '.join(map(show, choices))})"
        case s.Between(operand, low, high, negated):
            return f"({'not-' * negated}between {show(operand)} {show(low)} {show(high)})"
        case s.IsNull(operand, negated):
            return f"(is-{'not-' * negated}null {show(operand)})"
        case s.FunctionCall(function, arguments, distinct):
            return f"{function.text}({'distinct ' * distinct}{', '.join(map(show, arguments))})"
        case s.Star():
            return "*"
        case s.DurationLiteral(value_ns):
            return f"{value_ns}ns"
        case _:
            return str(getattr(node, "value", node))


@pytest.mark.parametrize("text", PRINTED)
def test_the_papers_queries_parse_as_printed(text: str) -> None:
    assert parse(text).statements


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a & 18 = 2 and b & 18 = 18", "(and (= (& a 18) 2) (= (& b 18) 18))"),
        ("a | b ^ c & d << e + f * -g", "(| a (^ b (& c (<< d (+ e (* f (- g)))))))"),
        ("a - b - c / d % e", "(- (- a b) (% (/ c d) e))"),
        ("-len % 7", "(% (- len) 7)"),
        ("(ttl ^ 255) & ~3", "(& (^ ttl 255) (~ 3))"),
        ("len << 2 | 1", "(| (<< len 2) 1)"),
        ("not a = b or c and d and e or f", "(or (not (= a b)) (and c d e) f)"),
        ("len > 100 AND NOT proto = 6", "(and (> len 100) (not (= proto 6)))"),
        ("(a or b) and c", "(and (or a b) c)"),
        ("a between b + 1 and c and d", "(and (between a (+ b 1) c) d)"),
        ("a not between 1 and 2", "(not-between a 1 2)"),
        ("a not in (1, 2 + 3)", "(not-in a 1 (+ 2 3))"),
        ("a IN 10.0.0.0/22 AND NOT b IN (10.0.1.2, ::1)", "(and (in a 10.0.0.0/22) (not (in b 10.0.1.2 ::1)))"),
        ("a in '10.0.0.0/8'", "(in a 10.0.0.0/8)"),
        ("(a / (b - 80)) is not null", "(is-not-null (/ a (- b 80)))"),
        ("a is null", "(is-null a)"),
        ("a != b", "(<> a b)"),
        ("a <> b", "(<> a b)"),
        ("a<b", "(< a b)"),
        ("a>>b>=c", "(>= (>> a b) c)"),
        ("ts + 90 seconds", "(+ ts 90000000000ns)"),
        ("row-num", "row-num"),
        ("M.ROW-NUM-1", "(- M.ROW-NUM 1)"),
        ("row-number", "(- row number)"),
        ("srcPort-destPort", "(- srcPort destPort)"),
        ("arrow-num", "(- arrow num)"),
        ("count (*)", "count(*)"),
        ("count(distinct a, b)", "count(distinct a, b)"),
        ("quantile(len, 0.9)", "quantile(len, 0.9)"),
        ("100.0 * sum(len) / total(sum(len))", "(/ (* 100.0 sum(len)) total(sum(len)))"),
        ("min(minute) - range - s", "(- (- min(minute) range) s)"),
        ("now()", "now()"),
    ],
)
def test_binding(text: str, shown: str) -> None:
    assert show(expression(text)) == shown


@pytest.mark.parametrize(
    ("text", "literal", "value"),
    [
        ("12", s.IntegerLiteral, 12),
        ("0x1F", s.IntegerLiteral, 31),
        ("9223372036854775808", s.IntegerLiteral, 2**63),
        ("0.90", s.DecimalLiteral, Decimal("0.90")),
        (".5", s.DecimalLiteral, Decimal("0.5")),
        ("5.", s.DecimalLiteral, Decimal(5)),
        ("1e3", s.DecimalLiteral, Decimal(1000)),
        ("'it''s'", s.StringLiteral, "it's"),
        ("'say \"x\" --'", s.StringLiteral, 'say "x" --'),
        ("TRUE", s.BooleanLiteral, True),
        ("10.0.0.1", s.AddressLiteral, ip_address("10.0.0.1")),
        ("2001:db8::1", s.AddressLiteral, ip_address("2001:db8::1")),
        ("::", s.AddressLiteral, ip_address("::")),
        ("fe80::1:2", s.AddressLiteral, ip_address("fe80::1:2")),
        ("::ffff:10.0.0.1", s.AddressLiteral, ip_address("::ffff:10.0.0.1")),
        ("10.1.2.3/8", s.PrefixLiteral, ip_network("10.0.0.0/8")),
        ("2001:db8::/115", s.PrefixLiteral, ip_network("2001:db8::/115")),
        ("00:1b:2C:33:44:55", s.MacLiteral, 0x001B2C334455),
        ("ab:cd:ef:0:1:2", s.MacLiteral, 0xABCDEF000102),
        ("0.5 seconds", s.DurationLiteral, 500_000_000),
        ("1.5h", s.DurationLiteral, 5400 * 10**9),
        ("0.000000001 s", s.DurationLiteral, 1),
    ],
)
def test_literals_carry_their_value(text: str, literal: type[s.SyntaxNode], value: object) -> None:
    found = expression(text)
    assert type(found) is literal
    assert next(getattr(found, name) for name in ("value", "value_ns") if hasattr(found, name)) == value
    assert found.span == s.Span(len("SELECT "), len("SELECT ") + len(text))


UNITS = {
    1: "ns nsec nsecs nanosecond nanoseconds",
    10**3: "us µs μs usec usecs microsecond microseconds",
    10**6: "ms msec msecs millisecond milliseconds",
    10**9: "s S sec secs second Seconds",
    60 * 10**9: "m min mins minute MINUTES mınute",
    3600 * 10**9: "h hr hrs hour hours",
    86400 * 10**9: "d day days dayſ",
    7 * 86400 * 10**9: "w week weeks",
}


@pytest.mark.parametrize(("ns", "word"), [(ns, word) for ns, words in UNITS.items() for word in words.split()])
def test_units(ns: int, word: str) -> None:
    assert unit_ns(word) == ns
    assert expression(f"3 {word}") == expression(f"3{word}") == s.DurationLiteral(3 * ns, span=s.Span(0, 0))


NOT_RESERVED = (
    "s m min minute h rows row range slide wa pa all tumbling asc stream left rank total first from_ 日".split()  # noqa: SIM905
)


@pytest.mark.parametrize("name", NOT_RESERVED)
def test_words_are_names_where_nothing_else_waits_for_them(name: str) -> None:
    query = select(f"SELECT {name}, 1 AS {name} FROM {name} GROUP BY x AS {name}")
    assert show(query.items[0].expression) == name
    assert query.items[1].alias == query.group_by[0].alias == s.Identifier(name, span=s.Span(0, 0))


def test_window_parameters_in_any_order() -> None:
    one = window("RANGE 12 rows, SLIDE 5 rows, WA row_num, PA srcIP, destIP")
    assert one == window("PA srcIP, destIP, WATTR row_num, slide 5 ROWS, range 12 row")
    assert one.range == s.RowCount(12, span=s.Span(0, 0))
    assert [show(field) for field in one.pa] == ["srcIP", "destIP"]
    assert (one.rattr, one.sattr, one.tumbling) == (None, None, False)


def test_window_kinds() -> None:
    span = s.Span(0, 0)
    assert window("RANGE ALL, SLIDE 1 minute").range == s.Everything(span=span)
    assert window("RANGE 10").range == s.IntegerLiteral(10, span=span)
    assert window("RANGE 0.5").range == s.DecimalLiteral(Decimal("0.5"), span=span)
    tumbling = window("RANGE TUMBLING 5 minutes, WA ts")
    assert (tumbling.tumbling, tumbling.range) == (True, s.DurationLiteral(300 * 10**9, span=span))
    ranked = window("RANGE 5 minutes, RATTR ts, SLIDE 5 rows, SATTR rank(ts)")
    assert ranked.rattr is not None
    assert ranked.sattr is not None
    assert (show(ranked.rattr), show(ranked.sattr)) == ("ts", "rank(ts)")
    named = window("RANGE 1 minute, WA M1.ts").wa
    assert named is not None
    assert show(named) == "M1.ts"


W = "[RANGE 1 minute]"


@pytest.mark.parametrize(
    "items",
    [f"a, count(*) {W} AS n", f"a, count(*) AS n {W}", f"a {W}, count(*) AS n", f"{W} a, count(*) AS n",
     f"a, {W} count(*) AS n"],
)  # fmt: skip
def test_window_stands_anywhere_in_the_select_list(items: str) -> None:
    assert select(f"SELECT {items} FROM M") == select(f"SELECT a, count(*) AS n {W} FROM M")


def test_window_of_an_input_stands_before_or_behind_its_alias() -> None:
    (source,) = select(f"SELECT * FROM A UNION B AS x {W}").sources
    assert (source,) == select(f"SELECT * FROM A UNION B {W} AS x").sources
    assert isinstance(source, s.Input)
    assert isinstance(source.relation, s.Union)
    assert source.alias == s.Identifier("x", span=s.Span(0, 0))
    assert source.window is not None


def test_unions() -> None:
    def relation(text: str) -> str:
        def shape(node: s.Relation) -> str:
            match node:
                case s.StreamRef(name):
                    return name.text
                case s.Union(members):
                    return f"({' '.join(map(shape, members))})"
                case s.Subquery():
                    return "select"

        (source,) = select(f"SELECT * FROM {text}").sources
        assert isinstance(source, s.Input)
        return shape(source.relation)

    assert relation("A") == relation("((A))") == "A"
    assert relation("A UNION B union all C") == "(A B C)"
    assert relation("(Main2 ∪ (Main1 ∪ Control))") == "(Main2 (Main1 Control))"
    assert relation("(SELECT * FROM A) UNION B AS x") == "(select B)"


@pytest.mark.parametrize(
    ("words", "kind"),
    [("JOIN", s.JoinKind.INNER), ("INNER JOIN", s.JoinKind.INNER), ("LEFT JOIN", s.JoinKind.LEFT),
     ("RIGHT OUTER JOIN", s.JoinKind.RIGHT), ("full outer join", s.JoinKind.FULL), ("SEMI JOIN", s.JoinKind.SEMI),
     ("LEFT ANTI JOIN", s.JoinKind.ANTI)],
)  # fmt: skip
def test_joins(words: str, kind: s.JoinKind) -> None:
    query = select(f"SELECT * FROM A {W} {words} B AS b {W} ON A.x = b.x and A.y = b.y, C {W} WHERE C.z = A.z")
    join, other = query.sources
    assert isinstance(join, s.JoinSource)
    assert isinstance(other, s.Input)
    assert join.kind is kind
    assert show(join.condition) == "(and (= A.x b.x) (= A.y b.y))"
    (chain,) = select("SELECT * FROM A JOIN B ON x LEFT JOIN C ON y").sources
    assert isinstance(chain, s.JoinSource)
    assert (chain.kind, type(chain.left)) == (s.JoinKind.LEFT, s.JoinSource)


def test_exists() -> None:
    where = select("SELECT * FROM A WHERE NOT EXISTS (SELECT * FROM B WHERE B.x = A.x) AND y").where
    assert isinstance(where, s.And)
    negated = where.operands[0]
    assert isinstance(negated, s.Not)
    assert isinstance(negated.operand, s.Exists)


def test_clauses() -> None:
    query = select(
        "SELECT DISTINCT a.*, b FROM M WHERE c GROUP-BY d AS e, f HAVING count(*) > 1 ORDER BY n DESC, g ASC, h LIMIT 4"
    )
    assert query.distinct
    assert query.items[0].expression == s.Star(s.Identifier("a", span=s.Span(0, 0)), span=s.Span(0, 0))
    assert [item.alias is not None for item in query.group_by] == [True, False]
    order = [(show(item.expression), item.descending) for item in query.order_by]
    assert order == [("n", True), ("g", False), ("h", False)]
    assert query.having is not None
    assert query.limit is not None
    assert (show(query.having), query.limit.value) == ("(> count(*) 1)", 4)


def test_a_comma_before_where_is_accepted() -> None:
    plain = parse("SELECT * FROM A, B WHERE x")
    assert plain == parse("SELECT * FROM A, B, WHERE x") == parse("SELECT * FROM A, B, -- so printed\n where x")


def test_statements_and_comments() -> None:
    script = parse("\ufeff-- one\nCREATE STREAM a AS SELECT * FROM M; /* two\nlines */ ;\nSELECT * FROM a -- three\n;;")
    created, last = script.statements
    assert isinstance(created, s.CreateStream)
    assert created.name.text == "a"
    assert isinstance(last, s.Select)
    assert select("SELECT a --1\nFROM M") == select("select/**/a FROM M")


def test_spans_are_the_text_of_their_node() -> None:
    text = (
        "SELECT (a + M.b) * 2 AS c, count(distinct x) [RANGE 5 minutes, PA p, q] FROM A UNION B AS u WHERE not y in (1)"
    )
    query = select(text)

    def at(node: s.SyntaxNode | None) -> str:
        assert node is not None
        return text[slice(*node.span)]

    assert at(query) == text
    product = query.items[0].expression
    assert isinstance(product, s.Binary)
    assert at(query.items[0]) == "(a + M.b) * 2 AS c"
    assert at(product) == "(a + M.b) * 2"
    assert at(product.left) == "a + M.b"
    assert at(query.items[1]) == "count(distinct x)"
    assert at(query.window) == "[RANGE 5 minutes, PA p, q]"
    assert query.window is not None
    assert [at(query.window.range), *map(at, query.window.pa)] == ["5 minutes", "p", "q"]
    assert at(query.sources[0]) == "A UNION B AS u"
    assert at(query.where) == "not y in (1)"


def test_spans_contain_those_of_what_is_below() -> None:
    for text in PRINTED:
        for node in s.walk(parse(text)):
            assert 0 <= node.span.start < node.span.end <= len(text)
            if not isinstance(node, s.Select):
                assert all(node.span.start <= below.span.start for below in s.children(node))
                assert all(below.span.end <= node.span.end for below in s.children(node))


def test_equality_is_structure_alone() -> None:
    assert expression("a + 1") == expression("( a  +  1 )")
    assert hash(expression("a + 1")) == hash(expression("a+1"))
    assert expression("a + 1") != expression("a + 1.0")
    assert expression("1") != expression("true")


def test_nesting_is_bounded_and_width_is_not() -> None:
    wide = " OR ".join(f"a = {i}" for i in range(2000))
    assert len(list(s.walk(expression(wide)))) == 1 + 4 * 2000
    assert expression("(" * 3000 + "a" + ")" * 3000) == expression("a")
    flat = expression(" + ".join("a" * 3000))
    assert len(list(s.walk(flat))) == 2999 + 2 * 3000
    for deep in ("- " * 3000 + "a", "a + (" * 1500 + "a" + ")" * 1500, "f(" * 3000 + "a" + ")" * 3000):
        with pytest.raises(QueryError, match="the limit of nesting is 100"):
            expression(deep)


def test_a_query_takes_milliseconds() -> None:
    parse(PRINTED[0])
    best = min(_seconds(PRINTED[10]) for _ in range(5))
    assert best < 0.02


def _seconds(text: str) -> float:
    start = time.perf_counter()
    parse(text)
    return time.perf_counter() - start


def test_comments_behind_a_comma_take_linear_time() -> None:
    text = "SELECT * FROM A, " + "-- " * 20_000
    start = time.perf_counter()
    with pytest.raises(QueryError, match="too soon"):
        parse(text)
    assert time.perf_counter() - start < 2


def test_importing_the_package_loads_no_grammar() -> None:
    code = (
        "import sys, lowmark.query, lowmark.query.parse.errors, lowmark.query.catalog; sys.exit('lark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
    code = "import lowmark.query.parse.parser as p; raise SystemExit(p.grammar.cache_info().currsize)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


_PIECES = (
    "SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT AS UNION ∪ JOIN LEFT SEMI ON AND OR NOT IN BETWEEN IS NULL EXISTS",
    "DISTINCT CREATE STREAM RANGE ALL TUMBLING SLIDE WA RATTR SATTR PA rows row-num minutes ms mınute ſ K é 日本",
    "5 7.5 1e999 99999999999999999999 10 0x 0xf a M.b count(*) 'x' ' \" ( ) [ ] , ; . * + - / % & | ^ ~ << >> = <>",
    "!= < > ! ? 10.0.0.1 10.0.0 1.2.3.4/99 ::1 :: a:b:c 00:11:22:33:44:55 -- /* */ \\",
)
WORDS = st.sampled_from([*(word for line in _PIECES for word in line.split()), "\n", "\t", "\x00", "\x1b", "\ufeff"])


@given(st.one_of(st.text(), st.lists(WORDS, max_size=25).map(" ".join), st.lists(WORDS, max_size=12).map("".join)))
@example("SELECT 5 ſ FROM M")
@example("SELECT * FROM M /*")
@example("SELECT a / *")
def test_any_text_parses_or_is_refused_at_a_spot_within_it(text: str) -> None:
    _parse_or_refuse(text)


@given(st.sampled_from(PRINTED), st.data())
def test_a_damaged_query_parses_or_is_refused_at_a_spot_within_it(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 12)))
    _parse_or_refuse(text[:start] + data.draw(st.one_of(st.text(max_size=4), WORDS)) + text[end:])


def _parse_or_refuse(text: str) -> None:
    outcome: s.Script | QueryError
    try:
        outcome = parse(text)
    except QueryError as error:
        outcome = error
    if isinstance(outcome, s.Script):
        assert all(0 <= node.span.start <= node.span.end <= len(text) for node in s.walk(outcome))
        return
    assert 0 <= outcome.span.start <= outcome.span.end <= len(text)
    assert outcome.text == text
    rendered = outcome.render()
    assert all(char == "\n" or char.isprintable() for char in rendered)
    assert "^" in rendered


_CONSTANTS = st.one_of(
    st.integers(0, 2**63).map(str), st.integers(0, 2**32).map(hex), st.decimals(0, 10**6, places=3).map(str),
    st.sampled_from([".5", "1.", "1e3", "1.5E-3", "true", "5 s", "1.5 minutes", "00:11:22:33:44:55", "::ffff:1.2.3.4"]),
    st.ip_addresses().map(str), st.ip_addresses(v=4).map(lambda address: f"{address}/24"),
    st.ip_addresses(v=6).map(lambda address: f"{address}/{int(address) % 129}"),
    st.text("ab,' -*/()", max_size=6).map(lambda text: "'" + text.replace("'", "''") + "'"),
)  # fmt: skip
_SIGNED = st.tuples(st.sampled_from(["", "", "-", "- "]), _CONSTANTS).map("".join)
_GAPS = st.sampled_from(["", " ", "  \n\t", " -- a, 'b\n", "/* 1, */", " /**/ ", "\ufeff"])


@given(st.lists(st.tuples(_GAPS, _SIGNED | st.sampled_from(["b", "5 / 2", "(1)", "f(1, 2)"]), _GAPS), min_size=1))
def test_a_run_of_constants_is_read_as_expressions_are(parts: list[tuple[str, str, str]]) -> None:
    text = f"SELECT x IN ({','.join(map(''.join, parts))}) FROM M"
    chosen = select(text).items[0].expression
    assert isinstance(chosen, s.In)
    one_by_one = [expression(f"x IN ({constant})") for _, constant, _ in parts]
    assert chosen.choices == tuple(choice for one in one_by_one if isinstance(one, s.In) for choice in one.choices)
    shown = [text[choice.span.start : choice.span.end] for choice in chosen.choices]
    assert shown == [constant.strip("()") if constant == "(1)" else constant for _, constant, _ in parts]


@pytest.mark.parametrize(
    ("choices", "spot", "message"),
    [
        ("10.0.0.1, 10.0.0.256, 10.0.0.3", "10.0.0.256", "10.0.0.256 is no address"),
        ("1, 99999999999999999999, 3", "99999999999999999999", "integers have 64 bits: this one is too great"),
        ("1, 2 3, 4", "3", "3 cannot stand here"),
        ("1, 2 'a, b', 4", "'a, b'", "'a, b' cannot stand here"),
        ("1, 2 -3, 4, 5) AND (6 7, 8", "7", "7 cannot stand here"),
        ("1, 2, , 4", ",", ", cannot stand here"),
        ("1, 2, )", ")", ") cannot stand here"),
        ("10.0.0.0/33, 2", "10.0.0.0/33", "10.0.0.0/33 is no address"),
    ],
)
def test_a_mistake_in_a_list_is_marked(choices: str, spot: str, message: str) -> None:
    text = f"SELECT a FROM M WHERE x IN ({choices})"
    with pytest.raises(QueryError) as raised:
        parse(text)
    assert raised.value.message == message
    assert text[slice(*raised.value.span)] == spot
    assert "CONSTANTS" not in raised.value.render()


def test_a_list_may_be_long_and_no_longer() -> None:
    def listed(entries: int) -> str:
        return f"SELECT a FROM M WHERE x IN ({','.join(map(str, range(entries)))})"

    where = select(listed(100_000)).where
    assert isinstance(where, s.In)
    assert len(where.choices) == 100_000
    with pytest.raises(QueryError, match="this list has 250,001 constants; the limit of entries is 250,000") as raised:
        parse(listed(250_001))
    assert raised.value.text[slice(*raised.value.span)] == "250000"
    assert len(raised.value.render()) < 500
