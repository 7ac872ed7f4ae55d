"""Long lists through the whole command, below and above the low level, against a look at each of their constants."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.acceptance.traffic import HOSTS, HOSTS6, Traffic
from tests.acceptance.whole import check_command

SENT = Traffic(seed=8, sizes=(("A", 150), ("B", 60)), disorder_s=2, nanoseconds=True)


def listed(constants: Iterable[object]) -> str:
    return ", ".join(map(str, constants))


def addresses(entries: int) -> str:
    """The first and the last of them are addresses of the traffic."""
    between = (f"172.16.{place // 256}.{place % 256}" for place in range(entries - 2))
    return listed((HOSTS[0], *between, HOSTS6[1]))


# Lists of other lengths have the same kernels, so that these compile but a few.
CASES = {
    f"{entries} addresses": "SELECT srcIP, count(*), sum(len) [RANGE 10 s] FROM A UNION B "
    f"WHERE srcIP IN ({addresses(entries)}) GROUP BY srcIP"
    for entries in (120, 5_001)
} | {
    "130 prefixes": "SELECT srcIP, count(*) [RANGE 10 s] FROM A UNION B WHERE srcIP NOT IN ("
    + listed(
        ["10.0.0.2/31", *(f"172.{16 + place // 64}.{place % 64 * 4}.0/23" for place in range(128)), "2001:db8::/47"]
    )
    + ") GROUP BY srcIP",
    "300 ports, one by one": "SELECT destPort, count(*) [RANGE 10 s] FROM A UNION B WHERE "
    + " OR ".join(f"destPort = {port}" for port in (*range(1_000, 1_597, 2), 443, 53))
    + " GROUP BY destPort",
    "values above": "SELECT srcIP, count(*) AS n, sum(len) / (count(*) - 1) AS m [RANGE 10 s] FROM A UNION B "
    f"GROUP BY srcIP HAVING n IN ({listed(range(1, 400, 2))}) "
    f"AND (m NOT IN ({listed(range(0, 4_000, 3))}) OR srcIP IN ({addresses(200)}))",
    "a join": "SELECT x.ts, y.ts, x.srcIP FROM A AS x [RANGE 5 s] JOIN B AS y [RANGE 5 s] ON x.srcIP = y.destIP AND "
    f"x.len + y.len IN ({listed(range(60, 3_000, 2))}) WHERE x.srcIP IN ({addresses(300)})",
}


@pytest.mark.parametrize("text", CASES.values(), ids=list(CASES))
def test_long_lists(text: str) -> None:
    check_command(text, SENT, ["--disorder", "scan"])
