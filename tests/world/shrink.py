"""Makes a schedule that fails shorter: events are left out as long as something is still wrong."""

from __future__ import annotations

from collections.abc import Callable

from tests.world.schedule import Schedule

__all__ = ["shrunk"]


def shrunk(events: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """No event of the result can be left out alone. `events` fail."""
    size = max(1, len(events) // 2)
    while True:
        start, before = 0, len(events)
        while start < len(events):
            fewer = events[:start] + events[start + size :]
            if fails(fewer):
                events = fewer
            else:
                start += size
        if size == 1 and len(events) == before:
            return events
        size = max(1, size // 2)
