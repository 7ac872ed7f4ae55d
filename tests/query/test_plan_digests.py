"""The digests by which a checkpoint knows its queries and steps: a change here makes every job's state another one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from lowmark.query.compile import compile_query
from lowmark.query.plan import fingerprint
from lowmark.query.plan.fingerprint import plan_digest, step_digests

TEXTS = {
    "tumbling": "SELECT srcIP, count(*) [RANGE TUMBLING 10 seconds, WA ts] FROM Main WHERE len > 100 GROUP BY srcIP",
    "sliding": "SELECT avg(len) AS mean [RANGE 60 seconds, SLIDE 10 seconds, WA ts] FROM Main HAVING mean > 1.5",
    "join": "SELECT M1.srcIP, count(*) [RANGE TUMBLING 10 seconds, WA M1.ts] FROM M1 "
    "[RANGE TUMBLING 10 seconds, WA ts], M2 [RANGE TUMBLING 10 seconds, WA ts] "
    "WHERE M1.srcIP = M2.destIP GROUP BY M1.srcIP",
    "top": "SELECT destPort, sum(len) AS bytes [RANGE TUMBLING 1 minute, WA ts] FROM Main GROUP BY destPort "
    "ORDER BY bytes DESC LIMIT 3",
    "rows": "SELECT ts, srcIP FROM Main WHERE srcIP IN 10.0.0.0/8",
}
GOLDEN = {
    "tumbling": ["5e2036738f001af1", "678eaf982bb6e014", "61a639b19b2b0865"],
    "sliding": ["e2167a75ebc237a9", "e48da188421c8608", "8c9871003534b8b3"],
    "join": ["542c06f7da528681", "56d92ae7eb1e9464", "7a4b25cdbaf40dd2", "bf372fa62299179c", "5b26a89edb12ad19"],
    "top": [
        "370ea4eb428e0b10",
        "4fda50aa6ee225df",
        "c0cc50421000c1f5",
        "5060e3b4a04ad961",
        "ec08c3803bf6f721",
        "c550966713cfba98",
        "42b32b3715a5c17b",
    ],
    "rows": ["9d5aa8b1c103c43f", "24337058bf717b12"],
}
SHOW = (
    "import sys; from lowmark.query.compile import compile_query; "
    "from lowmark.query.plan.fingerprint import plan_digest; print(plan_digest(compile_query(sys.argv[1])))"
)


def test_digests_are_those_of_the_released_form():
    found = {name: [plan_digest(plan), *step_digests(plan)] for name, plan in plans().items()}
    assert found == GOLDEN


def plans():
    return {name: compile_query(text) for name, text in TEXTS.items()}


def test_the_seed_of_hashes_does_not_count():
    shown = {
        subprocess.run(
            [sys.executable, "-c", SHOW, TEXTS["join"]],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert shown == {GOLDEN["join"][0]}


@dataclass(frozen=True)
class Plain:
    first: int
    second: str = "x"


def test_the_order_of_fields_and_new_fields_with_their_defaults_do_not_count():
    @dataclass(frozen=True, kw_only=True)
    class Turned:
        second: str = "x"
        third: tuple[int, ...] = ()
        first: int
        told: int = field(default=7, repr=False)

    Turned.__name__ = "Plain"
    form = fingerprint._form
    assert form(Turned(first=1)) == form(Plain(1))
    assert form(Turned(first=1, third=(2,))) != form(Plain(1))
    assert form(Plain(1, "y")) != form(Plain(1))


def test_what_has_no_canonical_form_is_refused():
    with pytest.raises(TypeError, match="object has no canonical form"):
        fingerprint._form(object())
