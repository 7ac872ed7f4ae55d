"""A group of commands: `lowmark` itself, `lowmark sources`, `lowmark checkpoint`."""

from __future__ import annotations

from typing import Any

import typer

__all__ = ["CommandGroup"]


class CommandGroup(typer.core.TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Removes the words about Python with which typer begins its message about a bad option value."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Shows the first sentence of each command whole; without `short_help`, typer cuts it off."""
        for command in self.commands.values():
            sentence, point, _ = " ".join((command.help or "").split()).partition(". ")
            command.short_help = sentence.removesuffix(".") + point.strip()
        super().format_commands(ctx, formatter)
