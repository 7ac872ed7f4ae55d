"""`lowmark pack`: what spark-submit and a cluster need of this installation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["pack"]


def pack(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Target folder.", show_default=False)],
    s3a: Annotated[bool, typer.Option("--s3a", help="Add the jars for a checkpoint at s3a://.")] = False,
    package: Annotated[
        list[str] | None,
        typer.Option(
            help="Add this installed package, too. Packages with aggregates are always added.", metavar="NAME"
        ),
    ] = None,
    compress: Annotated[bool, typer.Option(help="Compress the archive.")] = True,
) -> None:
    """Write what a Spark cluster needs of this installation: an archive with Python and lowmark, the jars, the script
    that spark-submit runs, and its properties. Hosts then need Java and Spark only.

    Examples:

    \b
      lowmark pack /srv/lowmark
      spark-submit --master spark://host:7077 --properties-file /srv/lowmark/spark.properties \\
          --conf spark.pyspark.driver.python=/opt/lowmark/bin/python \\
          /srv/lowmark/lowmark-job.py run -c lowmark.toml
    """
    from lowmark.app.console import telling
    from lowmark.app.job.packed import pack as write
    from lowmark.app.kafka.jars import S3A, SPARK_KAFKA

    with telling() as tell:
        packed = write(folder.absolute(), (SPARK_KAFKA, S3A) if s3a else (SPARK_KAFKA,), package or (), compress, tell)
    typer.echo(f"{packed.archive}: {packed.archive.stat().st_size / 1e6:.0f} MB")
    driver = f"--conf spark.pyspark.driver.python={sys.executable}"
    typer.echo(f"spark-submit --properties-file {packed.properties} {driver} {packed.script} run -c lowmark.toml")
