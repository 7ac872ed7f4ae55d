"""Which captures a query's streams are read from: the `-r` options of `lowmark query`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import typer

__all__ = ["Binding", "bind"]


@dataclass(frozen=True, slots=True)
class Binding:
    """One capture as a source of one stream. `rank` orders sources where times are equal: by the stream's name, then
    by the order of its captures."""

    stream: str
    source: str
    path: str
    rank: int


def bind(options: Sequence[str], streams: Sequence[str]) -> tuple[Binding, ...]:
    """`options` are `NAME=FILE` or `FILE`; `streams` those that the query reads, as it writes them. A capture without
    a name stands for every stream of the query; so does a single one with a name that the query does not have."""
    named: dict[str, list[str]] = {}
    unnamed: list[str] = []
    for option in options:
        name, equals, path = option.partition("=")
        if equals and name and "/" not in name:
            named.setdefault(_known(name, named), []).append(path)
        else:
            unnamed.append(option)
    if unnamed and named:
        raise typer.BadParameter(
            f"-r {unnamed[0]} has no name, and others have: give each one as NAME=FILE", param_hint="'-r'"
        )
    if not options:
        raise typer.BadParameter(
            f"name a capture for stream {', '.join(streams)}: -r FILE, or -r NAME=FILE for each of them",
            param_hint="'-r'",
        )
    if len(options) == 1 and named and not any(_same(name, streams) for name in named):
        unnamed = [path for paths in named.values() for path in paths]
        named = {}
    for stream in streams:
        if unnamed:
            named[stream] = unnamed
        elif not _same(stream, list(named)):
            raise typer.BadParameter(
                f"the query reads stream {stream}, which no -r names; named are {', '.join(named)}", param_hint="'-r'"
            )
    return _bindings({name: paths for name, paths in named.items() if _same(name, streams)})


def _bindings(named: dict[str, list[str]]) -> tuple[Binding, ...]:
    ordered = [(name, index, path) for name in sorted(named) for index, path in enumerate(named[name], 1)]
    return tuple(
        Binding(name, name if len(named[name]) == 1 else f"{name}-{index}", path, rank)
        for rank, (name, index, path) in enumerate(ordered)
    )


def _known(name: str, named: dict[str, list[str]]) -> str:
    """The spelling under which the stream came first: names ignore case."""
    return next((other for other in named if other.lower() == name.lower()), name)


def _same(name: str, names: Sequence[str]) -> bool:
    return name.lower() in {other.lower() for other in names}
