"""Notifies the service manager that started the process: systemd, for a unit with `Type=notify`. Only finished work
feeds the watchdog, never a clock. So systemd kills and restarts a process that makes no progress, even if its main
thread lives.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

__all__ = ["ServiceManager"]

_PATIENCE_S = 1.0
_FEEDS = 4
"""Number of feeds in a period of the watchdog, so that work that is seen a little late is still in time."""


class ServiceManager:
    """Callable from one thread."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        environment = os.environ if environment is None else environment
        self._now_s = now_s
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog_s(environment) if self._address else None
        self._fed_s = now_s()
        self._owed = ""  # what the manager must hear and has not taken yet

    @property
    def there(self) -> bool:
        return bool(self._address)

    def shown_too(self, progress: Callable[[str], None]) -> Callable[[str], None]:
        """As `progress`; the manager shows the text, too (`systemctl status`)."""

        def tell(text: str) -> None:
            self.status(text)
            progress(text)

        return tell

    def status(self, text: str) -> None:
        """What the manager shows of the process."""
        self._send(f"STATUS={' '.join(text.split())}")

    def ready(self) -> None:
        """Reports that the process is ready: it now does what it was started for."""
        self._owed = "READY=1\n"
        self._send("")
        self._fed_s = self._now_s()

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def stop_lasts(self, most_s: float) -> None:
        """Asks for so many more seconds to end; may be called again before they have passed."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(most_s * 1e6)}")

    def due(self) -> bool:
        """Whether it is time to feed the watchdog, or the manager has not yet taken the message that the process is
        ready."""
        if self._owed and self._address:
            return True
        return self.watchdog_s is not None and self._now_s() - self._fed_s >= self.watchdog_s / _FEEDS

    def worked(self) -> None:
        """Feeds the watchdog if it is time. Call it only for work that was done since the last call."""
        if self.due() and self._send("WATCHDOG=1"):
            self._fed_s = self._now_s()

    def _send(self, text: str) -> bool:
        """Whether the manager has taken the message. A manager that is gone or busy does not stop the work."""
        if not self._address:
            return False
        # A name that begins with @ is in Linux's abstract namespace.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(_PATIENCE_S)
            channel.sendto((self._owed + text).encode(), address)
            self._owed = ""
            return True
        return False


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """Seconds within which this process must feed the watchdog; None: there is no watchdog."""
    try:
        process = int(environment.get("WATCHDOG_PID") or os.getpid())
        period_s = int(environment["WATCHDOG_USEC"]) / 1e6
    except (KeyError, ValueError):
        return None
    return period_s if process == os.getpid() and period_s > 0 else None
