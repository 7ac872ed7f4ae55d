"""A configuration of its own for a measurement, and the commands that run on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.clients import admin, ensure_topics

__all__ = ["PAIRS", "QUERY", "Installation"]

QUERY = "pairs"

PAIRS = (
    "SELECT srcIP, destIP, count(*) AS packets, sum(len) AS bytes [RANGE {window}, WA ts] "
    "FROM Main GROUP BY srcIP, destIP"
)


class Installation:
    """One query, its topics, and the folder that holds the configuration and the checkpoint."""

    def __init__(
        self, folder: Path, bootstrap: str, sql: str, streams: Mapping[str, Mapping[str, str | Path]],
        replication: int = 1,
    ) -> None:  # fmt: skip
        """`streams` that the query reads: of each its sources by name, and the file of each of those."""
        folder.mkdir(parents=True)
        self.folder = folder
        self.path = folder / "lowmark.toml"
        self.path.write_text(
            f'[kafka]\nbootstrap = "{bootstrap}"\n'
            f'[topics]\nprefix = "{folder.name}-"\nreplication = {replication}\n'
            '[capture]\nmetrics = "127.0.0.1:0"\n'
            + "".join(f"[streams.{stream}]\n" for stream in streams)
            + "".join(
                f'[sources.{name}]\nstream = "{stream}"\nfile = "{file}"\n'
                for stream, sources in streams.items()
                for name, file in sources.items()
            )
            + f"[queries.{QUERY}]\nsql = '''{sql}'''\n"
            '[job]\nmetrics = "127.0.0.1:0"\n'
        )
        self.config: Config = load_config(self.path)
        self.plan: QueryPlan = plan_queries(self.config)[0]

    def set_job(self, line: str) -> None:
        """A setting of the job, which has not yet started."""
        with self.path.open("a") as file:
            file.write(line + "\n")

    @property
    def checkpoint(self) -> Path:
        """The folder that Spark keeps its log of batches in; once the job runs."""
        return next(path for path in (self.folder / "checkpoint" / "lowmark").iterdir() if (path / "commits").is_dir())

    def create_topics(self) -> None:
        problems = ensure_topics(admin(self.config.kafka), topics_of(self.config, [self.plan]))
        if problems:
            raise RuntimeError(f"topics: {problems}")
