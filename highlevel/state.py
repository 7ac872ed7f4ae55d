"""State of one (stage, bucket) in pieces: in memory for the local runner, over a byte store for the others.

A piece in a byte store begins with the version of its format and the fingerprint of its stage. Any other beginning is
refused: state of another program or another plan is never guessed at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from highlevel.interface import Space, State

__all__ = [
    "STATE_VERSION", "ByteStore", "MemoryByteStore", "MemoryState", "PiecewiseState", "ScopedState", "StateRefused",
]  # fmt: skip

P = TypeVar("P")

STATE_VERSION = 9
"""Version of the format of all pieces together. Every change of a piece's format needs a new version."""


class StateRefused(Exception):
    """Stored state cannot be read by this program. The message tells people what would be right."""


class ByteStore(Protocol):
    """Stores the pieces of one (stage, bucket) as bytes. What is stored is visible to the next `load`; durability is
    the store's own concern (Spark's state store commits with the micro-batch)."""

    def load(self, space: str, key: int) -> bytes | None: ...
    def store(self, space: str, key: int, piece: bytes) -> None: ...
    def delete(self, space: str, key: int) -> None: ...
    def keys(self, space: str) -> Sequence[int]:
        """All keys of the space, in any order. Called at most once per space and micro-batch."""
        ...


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

    def keys(self, space: str) -> Sequence[int]:
        return [key for name, key in self.pieces if name == space]


@dataclass
class _Live:
    """The live pieces of a space: `keys` is ascending and also holds the keys of pieces not yet loaded."""

    keys: list[int] = field(default_factory=list)
    pieces: dict[int, object] = field(default_factory=dict)
    encode: Callable[..., bytes] | None = None


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

    def drop(self, space: Space[P], key: int) -> None:
        live = self._spaces.get(space.name)
        if live is not None and live.pieces.pop(key, None) is not None:
            _remove(live.keys, key)

    def keys(self, space: Space[P], below: int | None = None) -> Sequence[int]:
        live = self._spaces.get(space.name)
        return [] if live is None else _below(live.keys, below)


class PiecewiseState:
    """Pieces over a byte store: each is read on first use, and written at `commit` if it was put since the last one.

    A piece that was only read is not written back, so a caller that changes a piece must put it. `commit` ends a
    micro-batch; the instance may be used further (its pieces stay live) or thrown away.
    """

    def __init__(self, store: ByteStore, stage: str) -> None:
        self._store = store
        self._head = STATE_VERSION.to_bytes(2, "big") + len(stage.encode()).to_bytes(2, "big") + stage.encode()
        self._stage = stage
        self._spaces: dict[str, _Live] = {}
        self._touched: dict[tuple[str, int], bool] = {}  # put (True) or dropped since the last commit, in that order

    def get(self, space: Space[P], key: int) -> P | None:
        live = self._space(space)
        if key in live.pieces:
            return live.pieces[key]  # type: ignore[return-value]  # `put` or `decode` gave a P
        at = bisect_left(live.keys, key)
        if at == len(live.keys) or live.keys[at] != key:
            return None
        stored = self._store.load(space.name, key)
        if stored is None:
            raise StateRefused(f"piece {key} of {space.name} of stage {self._stage} is listed and cannot be loaded")
        piece = space.decode(self._content(space.name, stored))
        live.pieces[key] = piece
        return piece

    def put(self, space: Space[P], key: int, piece: P) -> None:
        live = self._space(space)
        if key not in live.pieces:
            at = bisect_left(live.keys, key)
            if at == len(live.keys) or live.keys[at] != key:
                live.keys.insert(at, key)
        live.pieces[key] = piece
        self._touched[space.name, key] = True

    def drop(self, space: Space[P], key: int) -> None:
        live = self._space(space)
        if _remove(live.keys, key):
            live.pieces.pop(key, None)
            self._touched[space.name, key] = False

    def keys(self, space: Space[P], below: int | None = None) -> Sequence[int]:
        return _below(self._space(space).keys, below)

    def commit(self) -> int:
        """Write what was put and delete what was dropped since the last commit; returns the bytes written."""
        written = 0
        for (name, key), put in self._touched.items():
            if not put:
                self._store.delete(name, key)
                continue
            live = self._spaces[name]
            assert live.encode is not None
            piece = self._head + live.encode(live.pieces[key])
            self._store.store(name, key, piece)
            written += len(piece)
        self._touched.clear()
        return written

    def _space(self, space: Space[P]) -> _Live:
        live = self._spaces.get(space.name)
        if live is None:
            live = _Live(sorted(self._store.keys(space.name)), encode=space.encode)
            self._spaces[space.name] = live
        return live

    def _content(self, space: str, stored: bytes) -> bytes:
        if stored.startswith(self._head):
            return stored[len(self._head) :]
        version = int.from_bytes(stored[:2], "big")
        if version != STATE_VERSION:
            raise StateRefused(
                f"the stored state ({space}) has version {version}: this program reads {STATE_VERSION}. Finish it with "
                "the program that wrote it, or begin a new generation with --new-generation"
            )
        raise StateRefused(
            f"the stored state ({space}) belongs to another stage than {self._stage}: the checkpoint is of other "
            "queries. Start a new checkpoint"
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

    def drop(self, space: Space[P], key: int) -> None:
        self._state.drop(self._rename(space), key)

    def keys(self, space: Space[P], below: int | None = None) -> Sequence[int]:
        return self._state.keys(self._rename(space), below)

    def _rename(self, space: Space[P]) -> Space[P]:
        renamed = self._renamed.get(space.name)
        if renamed is None:
            renamed = Space(self._prefix + space.name, space.encode, space.decode)  # type: ignore[arg-type]
            self._renamed[space.name] = renamed
        return renamed  # type: ignore[return-value]  # of the same name, hence of the same pieces
