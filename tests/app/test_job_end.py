"""A job that is told to end while it ends for another reason."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from lowmark.app.config.file import load_config
from lowmark.app.job import process
from lowmark.app.job.reload import Reload
from lowmark.helpers import Backoff
from lowmark.wire.kafka.clients import KafkaUnavailable

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


class Unanswered(process._Job):
    """A job that is reloaded; its starts behind that find no broker, until there are no more of `steps`."""

    steps: list[str]

    def _run(self, stack: ExitStack, *_: object) -> None:
        match self.steps.pop(0) if self.steps else None:
            case "reload":
                raise process._Reloaded(Reload(self._config, self._plans))
            case "away":
                raise KafkaUnavailable("no broker answers")


@pytest.mark.parametrize(
    ("steps", "within_s", "starts"),
    [(["reload", "away", "away"], 300.0, True), (["reload", "away"], -1.0, False), (["away"], 300.0, False)],
)
def test_a_start_behind_a_reload_is_repeated_while_a_broker_is_away_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[str], within_s: float, starts: bool
) -> None:
    """What it has read of the new configuration is not lost with the process. The first start is its supervisor's."""
    path = tmp_path / "lowmark.toml"
    path.write_text(CONFIG.format(tmp_path / "checkpoint"))
    monkeypatch.setattr(process, "_Job", Unanswered)
    monkeypatch.setattr(process, "Backoff", lambda: Backoff(0.001))
    monkeypatch.setattr(process, "_START_WITHIN_S", within_s)
    monkeypatch.setattr(Unanswered, "steps", steps, raising=False)

    def run() -> int:
        return process.run_job(
            load_config(path), queries=None, master=None, until_last=True, beginning=process.Beginning(),
            progress=lambda _: None,
        )  # fmt: skip

    if starts:
        assert run() == 0
    else:
        with pytest.raises(KafkaUnavailable, match="no broker answers"):
            run()
    assert steps == []


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
