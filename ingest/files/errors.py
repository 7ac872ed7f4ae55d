"""Errors of captures that cannot be read: not at all (`CaptureError`), or not to their end (`Damage`)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["UNPACKING_MIB", "CaptureError", "Damage", "UnpackingLimit"]

UNPACKING_MIB = 130
"""Memory that a decompressor may use: a window of 128 MiB, as for `zstd --ultra -22`; `xz -9` needs 64 MiB."""


class CaptureError(Exception):
    """A capture of which nothing can be read. The text names the file, what was found and what would be right."""


class UnpackingLimit(Exception):
    """Compressed data need more memory than a decompressor may use."""

    def __init__(self, unpacker: str) -> None:
        super().__init__(
            f"the compressed data take more than {UNPACKING_MIB} MiB of memory to unpack ({unpacker} FILE | lowmark "
            "query -r - … reads them)"
        )


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a capture stopped being readable. Everything before `offset` was delivered, nothing after it. None: nothing
    of it can be read, and it is one of several files to read."""

    name: str  # name of the file as given
    offset: int | None  # offset of the first record that was not delivered
    reason: str
    decompressed: bool = False  # `offset` counts decompressed bytes

    @property
    def kind(self) -> str:
        """The word for this damage."""
        return "left out" if self.offset is None else "damaged"

    def __str__(self) -> str:
        if self.offset is None:
            return f"{self.name}: {self.reason}"
        of = " of the decompressed capture" if self.decompressed else ""
        read = "what stands before it was read" if self.offset else "nothing of it was read"
        return f"{self.name}: {self.reason}, at byte {self.offset}{of}; {read}"
