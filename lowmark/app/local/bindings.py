"""Which captures and interfaces a query's streams are read from: the options `-r` and `-i` of `lowmark query`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import typer

from ingest.live.ring import Fanout

__all__ = ["Binding", "bind", "fanned_out"]


@dataclass(frozen=True, slots=True)
class Binding:
    """One capture, or one interface, as a source of one stream. `rank` orders sources where times are equal: by the
    stream's name, then by the order of its captures."""

    stream: str
    source: str
    path: str  # or the interface's name
    rank: int
    live: bool = False  # an interface
    fanout: Fanout | None = None  # that it takes its share of


_READ, _INTERFACE = "-r", "-i"


@dataclass(frozen=True, slots=True)
class _Option:
    word: str  # of the two above
    text: str
    name: str | None  # of the stream, where it is given
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
    """`read` are `NAME=FILE` or `FILE`, `interfaces` alike; `streams` those that the query reads, as it writes them.
    What has no name stands for every stream of the query. `note` is told of names that the query does not read, beside
    those that it does."""
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
            f"{first.word} {first.text} has no name, and others have: give each one as NAME={first.text}",
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
        note(f"the query does not read {_streams(strange)}: what -r and -i name so is left out")
    return _bindings({name: given for name, given in named.items() if name not in strange})


def fanned_out(bindings: Sequence[Binding], members: int) -> tuple[Binding, ...]:
    """Each interface as so many sources, which divide its packets."""
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
    """The spelling under which the stream came first: names ignore case."""
    return next((other for other in named if other.casefold() == name.casefold()), name)


def _same(name: str, names: Sequence[str]) -> bool:
    return name.casefold() in {other.casefold() for other in names}


def _streams(names: Sequence[str]) -> str:
    return f"stream{'s' if len(names) > 1 else ''} {', '.join(names)}"
