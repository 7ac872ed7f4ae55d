"""A job that is told to end while it ends for another reason."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from lowmark.app.config.file import load_config
from lowmark.app.job import process

CONFIG = """
[kafka]
bootstrap = "127.0.0.1:1"
[streams.Main]
roster = ["a"]
[queries.q]
sql = "SELECT count(*) [RANGE 1 minute] FROM Main"
[job]
checkpoint = "{}"
"""


class Quarantining(process._Job):
    """A job that ends because a query is quarantined; Spark takes its time to end."""

    asked: list[bool]

    def _run(self, stack: ExitStack, *_: object) -> None:
        stack.enter_context(process._signals(self._be_told_to_end))
        if self.asked.pop(0):
            stack.callback(signal.raise_signal, signal.SIGTERM)
        raise process._Quarantined("q: quarantined")


class Left(process._Job):
    """A job whose sources have ended and whose query is quarantined."""

    signalled = False

    def _run(self, stack: ExitStack, *_: object) -> None:
        self._quarantined = {"q": "it failed"}
        self.told_to_end = self.signalled


@pytest.mark.parametrize(("until_last", "signalled", "status"), [(True, False, 2), (True, True, 0), (False, True, 0)])
def test_the_last_windows_of_a_quarantined_query_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until_last: bool, signalled: bool, status: int
) -> None:
    path = tmp_path / "lowmark.toml"
    path.write_text(CONFIG.format(tmp_path / "checkpoint"))
    monkeypatch.setattr(process, "_Job", Left)
    monkeypatch.setattr(Left, "signalled", signalled)
    config = load_config(path)
    found = process.run_job(
        config, queries=None, master=None, until_last=until_last, beginning=process.Beginning(), progress=lambda _: None
    )
    assert found == status


def test_a_signal_while_a_query_is_being_quarantined_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lowmark.toml"
    path.write_text(CONFIG.format(tmp_path / "checkpoint"))
    monkeypatch.setattr(process, "_Job", Quarantining)
    Quarantining.asked = [False, True]
    told: list[str] = []
    assert (
        process.run_job(
            load_config(path),
            queries=None,
            master=None,
            until_last=False,
            beginning=process.Beginning(),
            progress=told.append,
        )
        == 0
    )
    assert Quarantining.asked == []
