"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["CONFIG", "ConfigOption"]

CONFIG = Path("lowmark.toml")

ConfigOption = Annotated[
    Path, typer.Option("-c", "--config", metavar="FILE", envvar="LOWMARK_CONFIG", help="The configuration file.")
]
