"""The fast build of the kernel equals the checked one on damaged frames; `bench.fuzz` does any number of them."""

from __future__ import annotations

import pytest

from bench.fuzz import differing, fuzzed_node
from bench.host.guided_fuzz import frame_inputs, parser_test


@pytest.mark.slow
def test_the_builds_agree_on_damaged_frames() -> None:
    assert differing(200_000, 1) is None


@pytest.mark.slow
def test_plain_python_reads_what_native_code_does() -> None:
    """What coverage is taken of in `bench.fuzz --guided`."""
    test = parser_test(fuzzed_node(), lambda function: function)
    for data in frame_inputs().values():
        for size in (len(data), len(data) * 2 // 3, 40, 1):
            test(data[:size])
