from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from lowmark.query.parse.errors import QueryError, closest, unknown_word
from lowmark.query.parse.parser import parse
from lowmark.query.parse.syntax import Span


@dataclass(frozen=True)
class Bad:
    """A bad query, its spot between « and »; what the error says, lists and suggests."""

    marked: str
    message: str
    expected: tuple[str, ...] = ()
    hint: str = ""

    @property
    def text(self) -> str:
        return self.marked.replace("«", "").replace("»", "")

    @property
    def span(self) -> Span:
        return Span(self.marked.index("«"), self.marked.index("»") - 1)


BAD = {
    "nothing": Bad("«»", "no query", ("SELECT", "CREATE STREAM")),
    "comment alone": Bad("-- nothing«»", "no query", ("SELECT", "CREATE STREAM")),
    "misspelt SELECT": Bad("«SELCT» a FROM M", "SELCT cannot", ("SELECT", "CREATE STREAM"), "did you mean SELECT?"),
    "misspelt FROM": Bad("SELECT srcIP «FORM» M", "FORM cannot", ("FROM", "AS", '","'), "did you mean FROM?"),
    "misspelt WHERE": Bad("SELECT a FROM M «WHRE» a = 1", "WHRE cannot", ("WHERE", "GROUP BY"), "WHERE?"),
    "misspelt GROUP BY": Bad("SELECT a\nFROM M\n«GRUOP» BY a", "GRUOP cannot", ("GROUP BY",), "did you mean GROUP BY?"),
    "GROUP without BY": Bad("SELECT a FROM M «GROUP» a", "GROUP cannot", ("GROUP BY",), "did you mean GROUP BY?"),
    "misspelt parameter": Bad("SELECT count(*) [«RNAGE» 5 s] FROM M", "RNAGE", ("RANGE", "PA"), "RANGE?"),
    "misspelt unit": Bad("SELECT a [RANGE 5 «minuets»] FROM M", "no unit called", ("minutes", "rows"), "minutes?"),
    "foreign unit": Bad("SELECT a [SLIDE 5 «parsecs»] FROM M", "no unit called parsecs", ("minutes", "rows")),
    "unit in expression": Bad("SELECT ts + 90 «secnds» FROM M", "no unit called secnds", ("seconds",), "seconds?"),
    "unit in a key": Bad("SELECT count(*) FROM M GROUP BY ts/60 «tick»", "no unit called tick", ("ms",), "AS tick"),
    "empty window": Bad("SELECT a [«]» FROM M", "] cannot", ("RANGE", "SLIDE", "WA", "RATTR", "SATTR", "PA")),
    "no size": Bad("SELECT a [RANGE«,» WA ts] FROM M", ", cannot", ("ALL", "TUMBLING")),
    "no unit, no comma": Bad("SELECT a [RANGE 5 «SLIDE» 1 s] FROM M", "SLIDE cannot", ('","', '"]"')),
    "unit twice": Bad("SELECT a [RANGE 5 s «seconds»] FROM M", "seconds cannot", ('","', '"]"')),
    "no comma": Bad("SELECT a [RANGE 5 s «SLIDE» 1 s] FROM M", "SLIDE cannot", ('","', '"]"')),
    "parameter twice": Bad("SELECT a [RANGE 5 s, «RANGE 6 s»] FROM M", "has RANGE already"),
    "partition twice": Bad("SELECT a [PA a, b, «PA c»] FROM M", "has PA already"),
    "two windows": Bad("SELECT a [RANGE 5 s], b «[RANGE 6 s]» FROM M", "a window already"),
    "open window": Bad("SELECT a [RANGE 5 s«»", "ends too soon", ('","', '"]"')),
    "no FROM": Bad("SELECT a«»\n", "ends too soon", ("FROM", "AS")),
    "no stream": Bad("SELECT a FROM «WHERE» a", "WHERE cannot", ("a stream's name", '"("')),
    "nothing selected": Bad("SELECT «FROM» M", "FROM cannot", ("a field", "a literal", "a function", "*", "DISTINCT")),
    "second alias": Bad("SELECT * FROM Main m «n»", "n cannot", ("WHERE", "JOIN")),
    "misspelt behind an alias": Bad("SELECT * FROM Main m «WHER» a", "WHER cannot", ("WHERE", "JOIN"), "WHERE?"),
    "word of a join": Bad("SELECT a «left» FROM M", "left cannot", ("AS",), "given with AS: AS left"),
    "empty name": Bad('SELECT a AS «""» FROM M', "a name has a character"),
    "hidden name": Bad('SELECT a AS «".ts"» FROM M', "does not begin with a point"),
    "text as a name": Bad("SELECT a AS «'b'» FROM M", "'b' cannot", ("a name",)),
    "reserved alias": Bad("SELECT a AS «order» FROM M", "order cannot", ("a name",), "choose another name"),
    "order of clauses": Bad("SELECT a FROM M LIMIT 3 «ORDER BY» a", "ORDER BY cannot", ('";"',), "in this order"),
    "clause twice": Bad("SELECT a FROM M WHERE a «WHERE» b", "WHERE cannot", (), "once"),
    "limit": Bad("SELECT a FROM M LIMIT «many»", "many cannot", ("a whole number",)),
    "open parenthesis": Bad("SELECT (a + b «FROM» M", "FROM cannot", ('")"',)),
    "two comparisons": Bad("SELECT a < b «<» c FROM M", "< cannot", ("AND", "OR")),
    "double equals": Bad("SELECT a FROM M WHERE a =«=» 5", "= cannot", ("a literal",), "equality is written ="),
    "C's and": Bad("SELECT a &«&» b FROM M", "& cannot", ("a field",), "AND"),
    "C's or": Bad("SELECT a |«|» b FROM M", "| cannot", ("a field",), "OR"),
    "C's not": Bad("SELECT a FROM M WHERE «!»a", "! cannot", ("a field",), "NOT"),
    "= NULL": Bad("SELECT a FROM M WHERE a = «NULL»", "NULL cannot", ("a field",), "IS NULL"),
    "IN subquery": Bad("SELECT a FROM M WHERE a IN («SELECT» b FROM N)", "SELECT cannot", ("a literal",), "EXISTS"),
    "CROSS JOIN": Bad("SELECT a FROM A «CROSS» JOIN B", "CROSS cannot", ("JOIN",), "FROM A [RANGE …], B [RANGE …]"),
    "NATURAL JOIN": Bad("SELECT a FROM A AS x «natural» JOIN B", "natural cannot", ("JOIN",), "ON A.srcIP = B.srcIP"),
    "USING": Bad("SELECT a FROM A JOIN B «USING» (a)", "USING cannot", ("ON",), "ON A.srcIP = B.srcIP"),
    "IN without list": Bad("SELECT a FROM M WHERE a IN «b»", "b cannot", ('"("', "an address or prefix")),
    "open quote": Bad("SELECT «'abc FROM M»\n", "no closing quote"),
    "open comment": Bad("SELECT a «/*» b FROM M", "comment has no end", (), "*/"),
    "open comment behind FROM": Bad("SELECT a FROM M «/*» b", "comment has no end", (), "*/"),
    "foreign sign": Bad("SELECT a FROM M«?»", "? cannot", ("WHERE",)),
    "address": Bad("SELECT «10.0.0.300» FROM M", "10.0.0.300 is no address", ("10.0.0.1", "2001:db8::1")),
    "short address": Bad("SELECT «10.0.0» FROM M", "10.0.0 is no address", ("10.0.0.1",)),
    "prefix": Bad("SELECT a IN «10.0.0.0/33» FROM M", "10.0.0.0/33 is no address", ("10.0.0.0/8",)),
    "IPv6": Bad("SELECT «1:2:3» FROM M", "1:2:3 is no address", ("2001:db8::1", "00:11:22:33:44:55")),
    "great integer": Bad("SELECT «9223372036854775809» FROM M", "64 bits"),
    "endless integer": Bad(f"SELECT «{'9' * 5000}» FROM M", "the limit of digits is 100"),
    "great number": Bad("SELECT «1e309» FROM M", "range of a double"),
    "small number": Bad("SELECT «1e-999999999» FROM M", "range of a double"),
    "long duration": Bad("SELECT «300000 days» FROM M", "292 years"),
    "fraction of a nanosecond": Bad("SELECT «0.5 ns» FROM M", "whole number of nanoseconds"),
    "JOIN without ON": Bad("SELECT a FROM A JOIN B «WHERE» a", "WHERE cannot", ("ON",)),
    "later statement": Bad("SELECT a FROM M; «DROP» b", "DROP cannot", ("SELECT", "CREATE STREAM")),
    "stream without name": Bad("CREATE STREAM «AS» SELECT a FROM M", "AS cannot", ("a name for the stream",)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_queries_are_refused_at_the_spot_with_what_is_valid_there(name: str) -> None:
    bad = BAD[name]
    with pytest.raises(QueryError) as caught:
        parse(bad.text)
    error = caught.value
    assert bad.message in error.message
    assert error.span == bad.span
    assert error.line == bad.marked[: bad.marked.index("«")].count("\n") + 1
    assert set(bad.expected) <= set(error.expected)
    assert bad.hint in (error.hint or "")
    assert not any(word.startswith("_") or word == "STRAY COMMA" for word in error.expected)


def test_an_error_is_shown_with_its_line_and_marks() -> None:
    with pytest.raises(QueryError) as caught:
        parse("SELECT srcIP\n  FORM Main")
    assert caught.value.render().splitlines() == [
        "line 2, column 3: FORM cannot stand here",
        "      FORM Main",
        "      ^^^^",
        'valid here: an operator (+ - * / % & | ^ << >>), AND, AS, BETWEEN, FROM, IN, IS, NOT, OR, "(", ",",',
        '  ".", a comparison (= <> < <= > >=), a name of your own, a window "[…]"',
        "hint: did you mean FROM?",
    ]


@pytest.mark.parametrize(
    ("text", "span", "shown", "marks"),
    [
        ("ab cd", Span(3, 5), "ab cd", "   ^^"),
        ("ab", Span(2, 2), "ab", "  ^"),
        ("ab  ", Span(4, 4), "ab", "    ^"),
        ("a\nbc d\ne", Span(2, 8), "bc d", "^^^^"),
        ("a\r\nb", Span(0, 1), "a", "^"),
        ("\tab", Span(1, 3), " ab", " ^^"),
        ("日本 x", Span(3, 4), "日本 x", "     ^"),
        ("日本 x", Span(0, 2), "日本 x", "^^^^"),
        ("e\u0301 x", Span(3, 4), "e\u0301 x", "  ^"),
        ("\x1b[31m x", Span(0, 1), "�[31m x", "^"),
        ("a" * 150 + "xy" + "b" * 150, Span(150, 152), "… " + "a" * 50 + "xy" + "b" * 48 + " …", " " * 52 + "^^"),
        ("a" * 10 + "b" * 150, Span(0, 160), "a" * 10 + "b" * 90 + " …", "^" * 100),
    ],
)
def test_marks_stand_under_the_spot(text: str, span: Span, shown: str, marks: str) -> None:
    _message, line, carets = QueryError("no", text, span).render().split("\n")
    assert line == f"    {shown}"
    assert carets == f"    {marks}"


def test_an_error_without_choices_shows_none() -> None:
    assert "valid here" not in QueryError("no", "text", Span(0, 4)).render()
    assert QueryError("no", "text", Span(0, 4), ("this", "that")).render().endswith("valid here: this, that")


def test_unknown_words_get_the_choices_and_the_closest_one() -> None:
    error = unknown_word("field", "srcIPP", "SELECT srcIPP", Span(7, 13), ("ts", "srcIP", "destIP"))
    assert str(error) == "line 1, column 8: there is no field called srcIPP"
    assert (error.expected, error.hint) == (("ts", "srcIP", "destIP"), "did you mean srcIP?")
    assert unknown_word("field", "zzz", "zzz", Span(0, 3), ("ts",)).hint is None


def test_the_closest_word_is_found_in_any_case() -> None:
    assert closest("SRCPROT", ["destPort", "srcPort"]) == "srcPort"
    assert closest("", ["a"]) is None


def test_errors_cross_processes() -> None:
    error = unknown_word("field", "x", "SELECT x", Span(7, 8), ("ts",))
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.render(), copied.span) == (error.render(), error.span)
