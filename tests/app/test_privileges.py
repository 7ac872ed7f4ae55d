"""As whom a capture can go on."""

from __future__ import annotations

import os
import pwd

import pytest

from lowmark.app.capture.privileges import user_called
from lowmark.app.errors import StartRefused


def test_a_user_with_its_groups() -> None:
    found = user_called("nobody")
    entry = pwd.getpwnam("nobody")
    assert (found.uid, found.gid, found.home) == (entry.pw_uid, entry.pw_gid, entry.pw_dir)
    assert set(found.groups) == set(os.getgrouplist("nobody", entry.pw_gid))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lowmark-nobody", "there is no user 'lowmark-nobody' on this host"),
        ("root", "the user 'root' is root, which has every privilege"),
    ],
)
def test_nobody_to_become(name: str, said: str) -> None:
    with pytest.raises(StartRefused, match=said):
        user_called(name)
