"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["CONFIG", "ConfigOption", "ReloadOption"]

CONFIG = Path("lowmark.toml")

ConfigOption = Annotated[
    Path, typer.Option("-c", "--config", metavar="FILE", envvar="LOWMARK_CONFIG", help="The configuration file.")
]

ReloadOption = Annotated[
    bool,
    typer.Option(
        "--reload-on-change",
        help="Read the configuration again, as SIGHUP has it, when it or the text of one of its queries has changed. A "
        "mounted ConfigMap must be a folder for this, without subPath.",
    ),
]
