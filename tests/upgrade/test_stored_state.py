"""State that released versions have written is read, and gone on from. A changed format fails here without a
way to read the version before: see `Space.before`."""

from __future__ import annotations

import pytest

from highlevel.state import MemoryByteStore, StateRefused
from tests.progress.harness import plain
from tests.upgrade.stored import FOLDER, QUERIES, read, run

FILES = sorted(FOLDER.glob("*.json.gz"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_buckets_go_on_from_the_state_of_a_released_version(path):
    stored = read(path)
    assert [of.plan.name for of in stored] == list(QUERIES)
    for of in stored:
        whole, store = MemoryByteStore(), MemoryByteStore()
        run(of.plan, of.records[: of.cut], 0, whole)
        store.pieces = dict(of.pieces)
        expected = run(of.plan, of.records[of.cut :], of.cut, whole)
        found = run(of.plan, of.records[of.cut :], of.cut, store)
        assert len(expected) > 3, of.plan.name
        assert list(map(plain, found)) == list(map(plain, expected)), of.plan.name


def test_there_is_state_of_a_released_version():
    assert FILES


def test_state_whose_format_has_changed_is_noticed():
    """The test above can fail: a piece of another version is refused, and one of another content gives other rows."""
    of = read(FILES[-1])[0]
    store = MemoryByteStore()
    store.pieces = {name: piece[:2] + b"\0\x63" + piece[4:] for name, piece in of.pieces.items()}
    with pytest.raises(StateRefused, match="has version 99"):
        run(of.plan, of.records[of.cut :], of.cut, store)
