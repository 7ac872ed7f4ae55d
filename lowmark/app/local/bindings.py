"""Binds the streams of a query to captures and interfaces: the options `-r` and `-i` of `lowmark query`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import typer

from ingest.live.ring import Fanout

__all__ = ["Binding", "bind", "fanned_out"]


@dataclass(frozen=True, slots=True)
class Binding:
    """One capture or interface as a source of one stream. `rank` orders sources where times are equal: by stream name,
    then by the order of the stream's captures."""

    stream: str
    source: str
    path: str  # of the capture; or the interface's name
    rank: int
    live: bool = False  # the source is an interface
    fanout: Fanout | None = None  # the group that shares the interface's packets


_READ, _INTERFACE = "-r", "-i"


@dataclass(frozen=True, slots=True)
class _Option:
    word: str  # -r or -i
    text: str
    name: str | None  # of the stream; None: not given
    path: str

    @classmethod
    def of(cls, word: str, text: str) -> _Option:
        name, equals, path = text.partition("=")
        if equals and name and "/" not in name:
            return cls(word, text, name, path)
        return cls(word, text, None, text)


def bind(
    read: Sequence[str], interfaces: Sequence[str], streams: Sequence[str], note: Callable[[str], None]
) -> tuple[Binding, ...]:
    """`read`: `NAME=FILE` or `FILE`; `interfaces`: the same. `streams`: the streams of the query, as it writes them. An
    option without a name feeds every stream of the query. `note` gets the names that the query does not read."""
    options = [*(_Option.of(_READ, text) for text in read), *(_Option.of(_INTERFACE, text) for text in interfaces)]
    named: dict[str, list[_Option]] = {}
    unnamed: list[_Option] = []
    for option in options:
        if option.name is None:
            unnamed.append(option)
        else:
            named.setdefault(_known(option.name, named), []).append(option)
    if unnamed and named:
        first = unnamed[0]
        raise typer.BadParameter(
            f"{first.word} {first.text} names no stream, but other options do: write NAME={first.text}",
            param_hint=f"'{first.word}'",
        )
    if not options:
        raise typer.BadParameter(
            f"name a capture for stream {', '.join(streams)}: -r FILE, or -r NAME=FILE for each of them (or an "
            "interface: -i IFACE)",
            param_hint="'-r'",
        )
    if unnamed:
        return _bindings(dict.fromkeys(streams, unnamed))
    if missing := [stream for stream in streams if not _same(stream, list(named))]:
        raise typer.BadParameter(
            f"no -r or -i names a capture for {_streams(missing)}; named are {', '.join(named)}", param_hint="'-r'"
        )
    strange = [name for name in named if not _same(name, streams)]
    if strange:
        note(f"the query does not read {_streams(strange)}: -r and -i of that name are left out")
    return _bindings({name: given for name, given in named.items() if name not in strange})


def fanned_out(bindings: Sequence[Binding], members: int) -> tuple[Binding, ...]:
    """Splits each interface into so many sources, which share its packets."""
    if members == 1:
        return tuple(bindings)
    found: list[Binding] = []
    for binding in bindings:
        group = Fanout() if binding.live else None
        for member in range(members if binding.live else 1):
            name = f"{binding.source}-{member}" if binding.live else binding.source
            found.append(replace(binding, source=name, rank=len(found), fanout=group))
    return tuple(found)


def _bindings(named: dict[str, list[_Option]]) -> tuple[Binding, ...]:
    ordered = [(name, index, option) for name in sorted(named) for index, option in enumerate(named[name], 1)]
    return tuple(
        Binding(
            name, name if len(named[name]) == 1 else f"{name}-{index}", option.path, rank, option.word == _INTERFACE
        )
        for rank, (name, index, option) in enumerate(ordered)
    )


def _known(name: str, named: dict[str, list[_Option]]) -> str:
    """The first spelling of the stream's name: names ignore case."""
    return next((other for other in named if other.casefold() == name.casefold()), name)


def _same(name: str, names: Sequence[str]) -> bool:
    return name.casefold() in {other.casefold() for other in names}


def _streams(names: Sequence[str]) -> str:
    return f"stream{'s' if len(names) > 1 else ''} {', '.join(names)}"
