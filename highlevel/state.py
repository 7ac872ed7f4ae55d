"""State of one (stage, bucket) in pieces: in memory for the local runner, over a byte store for the others.

A piece in a byte store begins with the version of this head, the version of its space and the fingerprint of its stage.
A space reads its own version and, if it says how, the one before. Anything else is refused: state of another program or
another plan cannot be read.

A directory names the pieces and is a piece itself, because a state store may read all values to list its keys. A piece
of a growing space is stored in parts, so that a micro-batch writes only the additions.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache
from typing import Protocol, TypeVar

from highlevel.interface import Space, State
from highlevel.piece_directory import TAIL, Directory, Parts

__all__ = [
    "STATE_VERSION", "ByteStore", "MemoryByteStore", "MemoryState", "PiecewiseState", "ScopedState", "StateRefused",
]  # fmt: skip

P = TypeVar("P")

STATE_VERSION = 11
"""Version of the head before each piece, and of the way in which pieces are combined."""

_SMALL = 1 << 15
"""Bytes of the largest tail. To read and write it with each addition costs less than parts do, which have to be listed,
read one by one and merged."""

_DIRECTORY: Space[Directory] = Space("", Directory.encode, Directory.decode)
"""The name of the directory in the store; no other space has it."""


class StateRefused(Exception):
    """Stored state cannot be read by this program. The message tells people what would be right."""


class ByteStore(Protocol):
    """Stores the pieces of one (stage, bucket) as bytes. What is stored is visible to the next `load`; durability is
    the store's own concern (Spark's state store commits with the micro-batch)."""

    def load(self, space: str, key: int) -> bytes | None: ...
    def store(self, space: str, key: int, piece: bytes) -> None: ...
    def delete(self, space: str, key: int) -> None: ...


class MemoryByteStore:
    """A byte store in memory."""

    def __init__(self) -> None:
        self.pieces: dict[tuple[str, int], bytes] = {}

    def load(self, space: str, key: int) -> bytes | None:
        return self.pieces.get((space, key))

    def store(self, space: str, key: int, piece: bytes) -> None:
        self.pieces[space, key] = piece

    def delete(self, space: str, key: int) -> None:
        self.pieces.pop((space, key), None)


@dataclass
class _Live:
    """The live pieces of a space: `keys` is ascending and also holds the keys of pieces not yet loaded."""

    keys: list[int] = field(default_factory=list)
    pieces: dict[int, object] = field(default_factory=dict)


def _add(keys: list[int], key: int) -> None:
    if not keys or key > keys[-1]:
        keys.append(key)
    else:
        insort(keys, key)


def _remove(keys: list[int], key: int) -> bool:
    at = bisect_left(keys, key)
    found = at < len(keys) and keys[at] == key
    if found:
        del keys[at]
    return found


def _insert(keys: list[int], key: int) -> None:
    at = bisect_left(keys, key)
    if at == len(keys) or keys[at] != key:
        keys.insert(at, key)


def _name(space: str, part: int) -> str:
    """The name, in the store, of a part of a space's piece."""
    return f"{space}#{part}" if part else space


@lru_cache(maxsize=256)
def _head(stage: str, version: int) -> bytes:
    name = stage.encode()
    return b"".join(number.to_bytes(2, "big") for number in (STATE_VERSION, version, len(name))) + name


def _below(keys: list[int], below: int | None) -> Sequence[int]:
    return keys[:] if below is None else keys[: bisect_left(keys, below)]


class MemoryState:
    """Live objects, never written: the state of the local runner."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Live] = {}

    def get(self, space: Space[P], key: int) -> P | None:
        live = self._spaces.get(space.name)
        return None if live is None else live.pieces.get(key)  # type: ignore[return-value]  # `put` took a P

    def put(self, space: Space[P], key: int, piece: P) -> None:
        live = self._spaces.setdefault(space.name, _Live())
        if key not in live.pieces:
            _add(live.keys, key)
        live.pieces[key] = piece

    def part(self, space: Space[P], key: int) -> P | None:
        return self.get(space, key)

    def add(self, space: Space[P], key: int, part: P) -> None:
        self.put(space, key, part)

    def drop(self, space: Space[P], key: int) -> None:
        live = self._spaces.get(space.name)
        if live is not None and live.pieces.pop(key, None) is not None:
            _remove(live.keys, key)

    def keys(self, space: Space[P], below: int | None = None) -> Sequence[int]:
        live = self._spaces.get(space.name)
        return [] if live is None else _below(live.keys, below)


@dataclass
class _Stored(_Live):
    """Live pieces over a byte store. `new`: parts that take additions; `resumed`: those of them that begin with the
    stored tail; `stored`: the parts in the store; `known`: the pieces with `news` that have been read or written."""

    space: Space[object] = field(kw_only=True)
    new: dict[int, object] = field(default_factory=dict)
    resumed: set[int] = field(default_factory=set)
    stored: Parts = field(default_factory=Parts)
    known: dict[int, object] = field(default_factory=dict)


class _Touch(Enum):
    PUT = auto()
    ADDED = auto()
    DROPPED = auto()


class PiecewiseState:
    """Pieces over a byte store: each is read on first use, and written at `commit` if it was put since the last one.

    A piece that was only read is not written back, so a caller that changes a piece must put it. `commit` ends a
    micro-batch; the instance may be used further (its pieces stay live) or thrown away.
    """

    def __init__(self, store: ByteStore, stage: str) -> None:
        self._store = store
        self._stage = stage
        self._spaces: dict[str, _Stored] = {}
        self._touched: dict[tuple[str, int], _Touch] = {}  # since the last commit, in that order
        listed = store.load(_DIRECTORY.name, 0)
        self._directory = Directory() if listed is None else self._decoded(_DIRECTORY, listed)

    def get(self, space: Space[P], key: int) -> P | None:
        live = self._space(space)
        if key in live.pieces:
            return live.pieces[key]  # type: ignore[return-value]  # `put` or `decode` gave a P
        if self._touched.get((space.name, key)) is _Touch.DROPPED:
            return None
        resumed = key in live.resumed
        parts = [self._load(space, key, part) for part in live.stored.of(key) if part != TAIL or not resumed]
        if key in live.new:
            parts.append(live.new[key])  # type: ignore[arg-type]  # `add` took a P
        if not parts:
            return None
        piece = parts[0] if len(parts) == 1 else space.merged(parts)
        live.pieces[key] = piece
        if space.news is not None:
            live.known[key] = piece
        elif len(parts) > 1:
            # A piece that is read will be read again: unless it is dropped, it is written in one part.
            self._end_part(live, key)
            self._touched[space.name, key] = _Touch.PUT
        return piece

    def put(self, space: Space[P], key: int, piece: P) -> None:
        live = self._space(space)
        _insert(live.keys, key)
        live.pieces[key] = piece
        self._end_part(live, key)
        self._touched[space.name, key] = _Touch.PUT

    def part(self, space: Space[P], key: int) -> P | None:
        live = self._space(space)
        if self._touched.get((space.name, key)) is _Touch.PUT:
            return live.pieces[key]  # type: ignore[return-value]
        part = live.new.get(key)
        if part is None and self._touched.get((space.name, key)) is None and TAIL in live.stored.of(key):
            part = live.new[key] = self._load(space, key, TAIL)
            live.resumed.add(key)
        return part  # type: ignore[return-value]

    def add(self, space: Space[P], key: int, part: P) -> None:
        live = self._space(space)
        if self._touched.get((space.name, key)) in (_Touch.PUT, _Touch.DROPPED):
            self.put(space, key, part)
            return
        _insert(live.keys, key)
        live.new[key] = part
        if live.pieces.get(key) is not part:
            live.pieces.pop(key, None)
        self._touched[space.name, key] = _Touch.ADDED

    def drop(self, space: Space[P], key: int) -> None:
        live = self._space(space)
        if _remove(live.keys, key):
            for of in (live.pieces, live.known):
                of.pop(key, None)
            self._end_part(live, key)
            self._touched[space.name, key] = _Touch.DROPPED

    def keys(self, space: Space[P], below: int | None = None) -> Sequence[int]:
        return _below(self._space(space).keys, below)

    def spaces(self) -> list[str]:
        """The names of all spaces with stored pieces."""
        return self._directory.spaces()

    def forget(self, space: str) -> None:
        """Delete all stored pieces of a space that nobody uses."""
        assert space not in self._spaces, "it is not in use"
        parts = self._directory.parts(space)
        stored = parts.keys()
        for key in stored:
            for part in parts.of(key):
                self._store.delete(_name(space, part), key)
                parts.remove(key, part)

    def commit(self) -> int:
        """Write what was put and delete what was dropped since the last commit; returns the bytes written."""
        written = 0
        for (name, key), touch in self._touched.items():
            live = self._spaces[name]
            if touch is _Touch.ADDED:
                written += self._write_added(live, key)
            elif touch is _Touch.PUT:
                written += self._write_piece(live, key, live.pieces[key])
            else:
                for part in live.stored.of(key):
                    self._delete(live, key, part)
        self._touched.clear()
        if self._directory.changed:
            listed = _head(self._stage, _DIRECTORY.version) + self._directory.encode()
            self._store.store(_DIRECTORY.name, 0, listed)
            written += len(listed)
        return written

    def _write_piece(self, live: _Stored, key: int, piece: object) -> int:
        """Write a piece that was put: only its additions, if the rest is unchanged in the store."""
        if live.space.news is not None:
            news = live.space.news(piece)
            known, live.known[key] = live.known.get(key), piece
            if news is not None and known is piece:
                return self._append(live, key, news, live.space.encode(news))
        parts = live.stored.of(key)
        for part in parts[1:]:
            self._delete(live, key, part)
        return self._write(live, key, parts[0] if parts else 0, live.space.encode(piece))

    def _write_added(self, live: _Stored, key: int) -> int:
        """Write the part that took additions: as the tail if it is small."""
        new = live.new[key]
        encoded = live.space.encode(new)
        if len(encoded) <= _SMALL:
            live.resumed.add(key)
            return self._write(live, key, TAIL, encoded)
        if key in live.resumed:
            self._delete(live, key, TAIL)
        self._end_part(live, key)
        return self._append(live, key, new, encoded)

    def _append(self, live: _Stored, key: int, new: object, encoded: bytes) -> int:
        """Write additions to a piece, merged with the parts that they replace."""
        into, gone = live.stored.place(key)
        if gone:
            encoded = live.space.encode(live.space.merged([*(self._load(live.space, key, part) for part in gone), new]))
            for part in gone:
                self._delete(live, key, part)
        return self._write(live, key, into, encoded)

    def _end_part(self, live: _Stored, key: int) -> None:
        live.new.pop(key, None)
        live.resumed.discard(key)

    def _write(self, live: _Stored, key: int, part: int, encoded: bytes) -> int:
        stored = _head(self._stage, live.space.version) + encoded
        self._store.store(_name(live.space.name, part), key, stored)
        live.stored.add(key, part)
        return len(stored)

    def _load(self, space: Space[P], key: int, part: int) -> P:
        stored = self._store.load(_name(space.name, part), key)
        if stored is None:
            raise StateRefused(f"piece {key} of {space.name} of stage {self._stage} is listed and cannot be loaded")
        return self._decoded(space, stored)

    def _delete(self, live: _Stored, key: int, part: int) -> None:
        self._store.delete(_name(live.space.name, part), key)
        live.stored.remove(key, part)

    def _space(self, space: Space[P]) -> _Stored:
        live = self._spaces.get(space.name)
        if live is None:
            stored = self._directory.parts(space.name)
            live = _Stored(stored.keys(), space=space, stored=stored)  # type: ignore[arg-type]  # its pieces are P
            self._spaces[space.name] = live
        return live

    def _decoded(self, space: Space[P], stored: bytes) -> P:
        own = _head(self._stage, space.version)
        if stored.startswith(own):
            return space.decode(stored[len(own) :])
        if space.before is not None and stored.startswith(_head(self._stage, space.version - 1)):
            return space.before(stored[len(own) :])
        name, head, version = space.name or "directory", *(int.from_bytes(stored[at : at + 2], "big") for at in (0, 2))
        if head == STATE_VERSION and version == space.version:
            raise StateRefused(
                f"the stored state ({name}) belongs to another stage than {self._stage}: the checkpoint is of other "
                "queries. Start a new checkpoint"
            )
        found, read = (head, STATE_VERSION) if head != STATE_VERSION else (version, space.version)
        raise StateRefused(
            f"the stored state ({name}) has version {found}: this program reads {read}. Finish it with the program "
            "that wrote it, or begin a new generation with --new-generation"
        )


class ScopedState:
    """The state of one step: its spaces' names get a prefix of their own."""

    def __init__(self, state: State, prefix: str) -> None:
        self._state = state
        self._prefix = prefix
        self._renamed: dict[str, Space[object]] = {}

    def get(self, space: Space[P], key: int) -> P | None:
        return self._state.get(self._rename(space), key)

    def put(self, space: Space[P], key: int, piece: P) -> None:
        self._state.put(self._rename(space), key, piece)

    def part(self, space: Space[P], key: int) -> P | None:
        return self._state.part(self._rename(space), key)

    def add(self, space: Space[P], key: int, part: P) -> None:
        self._state.add(self._rename(space), key, part)

    def drop(self, space: Space[P], key: int) -> None:
        self._state.drop(self._rename(space), key)

    def keys(self, space: Space[P], below: int | None = None) -> Sequence[int]:
        return self._state.keys(self._rename(space), below)

    def _rename(self, space: Space[P]) -> Space[P]:
        renamed = self._renamed.get(space.name)
        if renamed is None:
            renamed = replace(space, name=self._prefix + space.name)  # type: ignore[assignment]
            self._renamed[space.name] = renamed  # type: ignore[assignment]
        return renamed  # type: ignore[return-value]  # of the same name, hence of the same pieces
