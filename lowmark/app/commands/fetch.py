"""`lowmark fetch`: downloads what later starts need, so that they need no network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["fetch"]


def fetch(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="Target folder. Default: LOWMARK_JARS, else the cache that all commands use.",
            show_default=False,
        ),
    ] = None,
    s3a: Annotated[bool, typer.Option("--s3a", help="Fetch also the jars for a checkpoint at s3a://.")] = False,
) -> None:
    """Fetch the jars of the broker and of Spark's Kafka connector, at pinned versions, and check their hashes. After
    that, `lowmark run`, `lowmark broker` and `lowmark demo` start without a network; otherwise they fetch the jars at
    their first start.

    Fetches only missing and damaged jars. You can copy the folder to other hosts or into an image, and it may be
    read-only there; set LOWMARK_JARS to it.

    Examples:

    \b
      lowmark fetch
      lowmark fetch /opt/lowmark/share/lowmark
    """
    from lowmark.app.console import telling
    from lowmark.app.kafka.jars import S3A, SETS, jars_root, kept
    from lowmark.app.kafka.jars import fetch as fetch_jars
    from lowmark.app.kafka.java import find_java

    cache = (folder or jars_root()).absolute()
    java = find_java()
    with telling() as tell:
        for jar_set in (*SETS, S3A) if s3a else SETS:
            fetched = fetch_jars(jar_set, java=java, cache=cache, progress=tell)
            jars = kept(jar_set, cache=cache)
            size = sum(jar.stat().st_size for jar in jars) / 1e6
            state = "fetched" if fetched else "there already"
            typer.echo(f"{state}: {len(jars)} jars of {jar_set.purpose}, {size:.1f} MB, in {jars[0].parent}")
    typer.echo(f"Java {java.version} of {java.home} is not included: each host needs its own")
    if cache != jars_root():
        typer.echo(f"to use them: LOWMARK_JARS={cache}")
