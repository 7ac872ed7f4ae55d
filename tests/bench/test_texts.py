"""What `bench.texts` says of texts that are within a time, and of such as are not."""

from __future__ import annotations

import pytest
import typer

from bench.texts import texts


def test_all_texts_are_answered_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    texts(count=30, first=1, within=10.0)
    assert "each of 30 texts was answered or refused in a sentence, within 10 s" in capsys.readouterr().out


def test_a_text_that_takes_longer_is_a_find(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught:
        texts(count=1, first=1, within=0.0)
    assert caught.value.exit_code == 1
    assert "again: python -m bench.texts --count 1 --seed 1" in capsys.readouterr().out
