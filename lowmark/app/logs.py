"""Logs: plain text on a terminal, JSON lines elsewhere. Always on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

__all__ = ["set_up_logs"]


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up_logs(verbose: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
    handler.setFormatter(plain if sys.stderr.isatty() else _JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # Spark's bridge logs a traceback for every error that it passes on, even at an ordinary stop. The job reports them.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("lowmark").setLevel(logging.DEBUG if verbose else logging.INFO)
