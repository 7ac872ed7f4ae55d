"""Queries at the edge of what there may be of something: constants in lists, keys, aggregates."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.acceptance.traffic import HOSTS, HOSTS6, PORTS

__all__ = ["lists", "wide"]

_KEYS = (
    "srcIP", "destIP", "srcPort", "destPort", "proto", "tos", "ttl", "tcp_flags", "icmp_type", "icmp_code",
    "ip_version", "fragment", "vlan", "srcMAC", "link", "len", "ip_len", "payload_len",
)  # fmt: skip
_CALLS = ("sum({})", "min({})", "max({})", "avg({})", "bit_or({})", "bit_and({})", "variance({})", "count({})")
_NUMBERS = ("len", "ip_len", "payload_len", "srcPort", "destPort", "ttl", "tos")


@st.composite
def lists(draw: st.DrawFn) -> str:
    """Up to some thousand constants, of which the traffic has a few."""
    size = draw(st.sampled_from((1, 2, 30, 120, 130, 300, 5001)))
    seed = draw(st.integers(0, 1000))
    chosen: list[str]
    match draw(st.sampled_from(("srcIP", "prefixes", "destPort"))):
        case "srcIP":
            field, here = "srcIP", [*HOSTS, *HOSTS6]
            others = [f"172.16.{n >> 8}.{n & 255}" if n % 3 else f"2001:db8:9::{n:x}" for n in range(seed, seed + size)]
        case "prefixes":
            field, here = "destIP", ["10.0.0.0/31", "10.0.1.0/24", "2001:db8::/47", "::ffff:0:0/96"]
            others = [f"172.{n >> 8 & 255}.{n & 255}.0/{24 + n % 9}" for n in range(seed, seed + size)]
        case _:
            field, here = "destPort", [str(port) for port in PORTS]
            others = [str((seed * 37 + n * 5) % 65536) for n in range(size)]
    chosen = draw(st.lists(st.sampled_from(here), max_size=3))
    word = draw(st.sampled_from(("IN", "NOT IN")))
    where = f"{field} {word} ({', '.join([*others, *chosen])})"
    return f"SELECT {field}, count(*) AS n [RANGE 10 s, SLIDE 5 s] FROM A UNION B WHERE {where} GROUP BY {field}"


@st.composite
def wide(draw: st.DrawFn) -> str:
    """Many keys, and many aggregates over them."""
    keys = draw(st.lists(st.sampled_from(_KEYS), min_size=6, max_size=len(_KEYS), unique=True))
    pairs = st.tuples(st.sampled_from(_CALLS), st.sampled_from(_NUMBERS))
    calls = draw(st.lists(pairs, max_size=10, unique=True))
    shown = [*keys, *(f"{call.format(number)} AS a{n}" for n, (call, number) in enumerate(calls))]
    return f"SELECT {', '.join(shown)} [RANGE 20 s, SLIDE 5 s] FROM A UNION B GROUP BY {', '.join(keys)}"
