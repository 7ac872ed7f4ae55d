"""Tables of a configuration file into dataclasses: what is taken, and what is said of what is not."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.app.config.toml_tables import ConfigError, dotted, expand, read_table


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Inner:
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count is {self.count}; it is a number above 0")


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    colour: Colour = Colour.RED
    ratio: float = 0.5
    on: bool = False
    path: Path | None = None
    inner: Inner = field(default_factory=Inner)
    tags: tuple[str, ...] = ()


def test_a_table_of_every_kind_of_value() -> None:
    table = {
        "name": "a", "colour": "blue", "ratio": 2, "on": True, "path": "/tmp/x", "inner": {"count": 3}, "tags": ["b"],
    }  # fmt: skip
    read = read_table(Outer, table, "outer")
    assert read == Outer(
        name="a", colour=Colour.BLUE, ratio=2.0, on=True, path=Path("/tmp/x"), inner=Inner(count=3), tags=("b",)
    )
    assert isinstance(read.ratio, float)


def test_what_is_not_given_has_its_default() -> None:
    assert read_table(Outer, {"name": "a"}, "outer") == Outer(name="a")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("text", "outer: 'text' is not a table"),
        ({}, "outer: name is missing"),
        ({"name": "a", "nmae": 1}, "outer: unknown key 'nmae'. Did you mean name? Valid here: name, colour,"),
        ({"name": "a", "zzzzz": 1}, "outer: unknown key 'zzzzz'. Valid here:"),
        ({"name": 1}, "outer.name: 1 is not text"),
        ({"name": "a", "colour": "green"}, "outer.colour: 'green' is not one of red, blue"),
        ({"name": "a", "colour": 1}, "outer.colour: 1 is not one of red, blue"),
        ({"name": "a", "ratio": "much"}, "outer.ratio: 'much' is not a number"),
        ({"name": "a", "ratio": True}, "outer.ratio: True is not a number"),
        ({"name": "a", "on": 1}, "outer.on: 1 is not true or false"),
        ({"name": "a", "path": 1}, "outer.path: 1 is not a path"),
        ({"name": "a", "tags": "b"}, "outer.tags: 'b' is not a list"),
        ({"name": "a", "tags": ["b", 1]}, "outer.tags[1]: 1 is not text"),
        ({"name": "a", "inner": 1}, "outer.inner: 1 is not a table"),
        ({"name": "a", "inner": {"count": True}}, "outer.inner.count: True is not a whole number"),
        ({"name": "a", "inner": {"count": 1.5}}, "outer.inner.count: 1.5 is not a whole number"),
        ({"name": "a", "inner": {"count": 0}}, "outer.inner: count is 0; it is a number above 0"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(table: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_table(Outer, table, "outer")
    assert str(caught.value).startswith(said)
    assert caught.value.exit_code == 2


def test_a_skipped_field_is_an_unknown_key() -> None:
    skip = frozenset({"on"})
    assert read_table(Outer, {"name": "a"}, "outer", skip) == Outer(name="a")
    with pytest.raises(ConfigError, match="unknown key 'on'") as caught:
        read_table(Outer, {"name": "a", "on": True}, "outer", skip)
    assert " on," not in str(caught.value).partition("Valid here")[2]


def test_variables_are_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LM_SITE", "north")
    monkeypatch.setenv("LM_COLOUR", "blue")
    table = {"name": "${LM_SITE}-1", "colour": "${LM_COLOUR}", "path": "/x/${LM_SITE}", "tags": ["${LM_SITE}"]}
    read = read_table(Outer, table, "outer")
    assert (read.name, read.colour, read.path, read.tags) == ("north-1", Colour.BLUE, Path("/x/north"), ("north",))


def test_a_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LM_SITE", raising=False)
    with pytest.raises(ConfigError, match=r"outer\.name: the environment variable LM_SITE is not set"):
        read_table(Outer, {"name": "${LM_SITE}"}, "outer")


def test_the_hosts_name_is_known_even_where_the_environment_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOSTNAME", raising=False)
    assert expand("tap-${HOSTNAME}", "here") == f"tap-{os.uname().nodename}"
    monkeypatch.setenv("HOSTNAME", "given")
    assert expand("tap-${HOSTNAME}", "here") == "tap-given"


@given(st.text().filter(lambda text: "${" not in text))
def test_text_without_variables_stays_as_it_is(text: str) -> None:
    assert expand(text, "here") == text


def test_settings_with_dotted_names_may_be_quoted_or_not():
    table = tomllib.loads('"spark.a.b" = "1g"\nspark.c.d = 2\nspark.c.e = true\n')
    assert dotted(table, "job.spark") == {"spark.a.b": "1g", "spark.c.d": "2", "spark.c.e": "true"}
    with pytest.raises(ConfigError, match=r"job\.spark\.spark\.c: \[1\] is not text"):
        dotted({"spark": {"c": [1]}}, "job.spark")
