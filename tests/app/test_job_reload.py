"""SIGHUP to `lowmark run`: what is taken, what is refused, and what does not concern the job."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lowmark.app.config.changes import ConfigChanges
from lowmark.app.config.file import load_config
from lowmark.app.config.queries import plan_queries
from lowmark.app.job.reload import Reload, ReloadRequests

TEXT = """
[kafka]
bootstrap = "127.0.0.1:1"
[job]
overlap = "5 s"
buckets = 2
[streams.Main]
roster = ["left", "capture-*"]
[streams.Other]
roster = ["tap"]
[queries.busy]
sql = "SELECT srcIP, count(*) [RANGE 1 s] FROM Main GROUP BY srcIP"
[queries.other]
sql = "SELECT srcIP, count(*) [RANGE 1 s] FROM Other GROUP BY srcIP"
"""


def reloaded(folder: Path, text: str, *queries: str) -> tuple[Reload, Reload | None]:
    """What a job runs, and what it takes when somebody asks after the file has changed."""
    path = folder / "lowmark.toml"
    path.write_text(TEXT)
    config = load_config(path)
    path.write_text(text)
    requests = ReloadRequests(queries or None)
    assert requests.take(config) is None, "nobody has asked"
    requests.ask()
    found = requests.take(config)
    assert requests.take(config) is None, "once"
    return Reload(config, plan_queries(config, queries or None)), found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("count(*) [RANGE 1 s] FROM Main", "count(*) [RANGE 2 s] FROM Main"),
        ('FROM Main GROUP BY srcIP"', 'FROM Main GROUP BY srcIP"\nformat = "arrow"'),
        ('FROM Main GROUP BY srcIP"', 'FROM Main GROUP BY srcIP HAVING count(*) > 1"'),
        ('["left", ', '["left", "right", '),
        ('"capture-*"]', '"capture-*"]\nstall = "exclude after 9 s"'),
        ("[queries.other]", "[queries.more]"),
    ],
)
def test_what_concerns_the_job_changes_it(tmp_path: Path, old: str, new: str) -> None:
    assert old in TEXT
    before, after = reloaded(tmp_path, TEXT.replace(old, new))
    assert after is not None
    assert not after.runs_as(before)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("[kafka]", "# a comment\n[kafka]"),
        ('overlap = "5 s"', 'overlap = "7 s"'),
        ('["tap"]', '["tap", "top"]'),
        ("count(*) [RANGE 1 s] FROM Other", "count(*) [RANGE 2 s] FROM Other"),
        ("[queries.other]", "[queries.more]"),
    ],
)
def test_what_does_not_concern_it_leaves_it_alone(tmp_path: Path, old: str, new: str) -> None:
    before, after = reloaded(tmp_path, TEXT.replace(old, new, 1), "busy")
    assert after is not None
    assert after.runs_as(before)
    assert after.config.job.overlap_s == (7 if "7 s" in new else 5), "the next change waits as long as captures do"


def test_other_settings_need_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "lowmark.job"):
        _, after = reloaded(tmp_path, TEXT.replace("buckets = 2", "buckets = 3"))
    assert after is None
    assert "more than queries, streams, sources and job.overlap has changed" in caplog.text


def test_a_change_is_taken_without_a_signal_and_what_is_refused_is_remembered(tmp_path: Path) -> None:
    path, clock = tmp_path / "lowmark.toml", [0.0]
    path.write_text(TEXT)
    config = load_config(path)
    requests = ReloadRequests(None, ConfigChanges(path, lambda: clock[0]))

    def looked() -> Reload | None:
        """The second look sees that a change is whole."""
        found = []
        for _ in range(2):
            clock[0] += 2
            found.append(requests.take(config))
        assert found[0] is None
        return found[1]

    assert looked() is None
    path.write_text(TEXT.replace("count(*)", "sum(nothing)"))
    assert looked() is None
    assert "no field called nothing" in str(requests.refused)
    path.write_text(TEXT.replace("buckets = 2", "buckets = 3"))
    assert looked() is None
    assert "restart the job" in str(requests.refused)
    path.write_text(TEXT.replace("RANGE 1 s", "RANGE 2 s"))
    taken = looked()
    assert requests.refused is None
    assert taken == Reload(load_config(path), tuple(plan_queries(load_config(path))))
    assert looked() is None
    requests.refuse(ValueError("topics are missing"))
    assert requests.refused == "topics are missing"
