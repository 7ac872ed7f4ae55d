"""Golden files of queries: blocks of `# name stream=sources …`, the query, a line `----`, and what it gives.

`python -m tests.query.golden` writes them anew: read the difference before it is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lowmark.query.compile import compile_query
from lowmark.query.parse.errors import QueryError
from tests.query.summaries import summary

FOLDER = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Block:
    head: str
    sql: str
    result: str

    @property
    def streams(self) -> dict[str, int] | None:
        pairs = [word.split("=") for word in self.head.split()[1:]]
        return {name: int(count) for name, count in pairs} or None

    def text(self) -> str:
        return f"# {self.head}\n{self.sql}\n----\n{self.result}\n"


def read(name: str) -> list[Block]:
    blocks = []
    for text in (FOLDER / name).read_text(encoding="utf-8").split("\n# ")[0:]:
        head, rest = text.removeprefix("# ").split("\n", 1)
        sql, result = rest.split("\n----\n")
        blocks.append(Block(head, sql, result.rstrip("\n")))
    return blocks


def plan_of(block: Block) -> str:
    plan = compile_query(block.sql, streams=block.streams, buckets=4)
    last = f"{plan.stage.fingerprint} {plan.stage.buckets} of 4 buckets, shows {', '.join(plan.output.names)}"
    return "\n".join((*summary(plan), last))


def refusal_of(block: Block) -> str:
    try:
        compile_query(block.sql, streams=block.streams)
    except QueryError as error:
        return error.render()
    raise AssertionError(f"accepted: {block.sql}")


GIVES: dict[str, Callable[[Block], str]] = {
    "plans.txt": plan_of,
    "joins.txt": plan_of,
    "refusals.txt": refusal_of,
    "joinrefusals.txt": refusal_of,
}

if __name__ == "__main__":
    for name, gives in GIVES.items():
        blocks = [Block(block.head, block.sql, gives(block)) for block in read(name)]
        (FOLDER / name).write_text("\n".join(block.text() for block in blocks), encoding="utf-8")
