"""The demo as a newcomer meets it: final windows on the terminal, and nothing left behind after Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

DEADLINE_S = 240


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_final_windows_appear_and_ctrl_c_ends_everything(tmp_path: Path) -> None:
    folder = tmp_path / "a demo"
    demo = subprocess.Popen(
        [sys.executable, "-m", "lowmark", "demo", "--rate", "1000", "--keep", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    expired = threading.Timer(DEADLINE_S, demo.kill)
    expired.start()
    assert demo.stdout is not None
    said = []
    for line in demo.stdout:
        said.append(line)
        if sum("exact" in text for text in said) == 2:
            break
    addresses: list[str] = []
    if (folder / "lowmark.toml").exists():
        config = tomllib.loads((folder / "lowmark.toml").read_text())
        addresses = [config["kafka"]["bootstrap"], config["capture"]["metrics"], config["job"]["metrics"]]
    running = [listens(address) for address in addresses]
    demo.send_signal(signal.SIGINT)
    _, told = demo.communicate(timeout=60)
    expired.cancel()
    logs = "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob("*.log")))
    assert len(addresses) == 3, told + logs
    assert running == [True, True, True], told + logs
    assert demo.returncode == 0, told + logs
    assert not any(listens(address) for address in addresses), "something was left running"
    windows = [line for line in said if "talkers" in line and "exact" in line]
    assert len(windows) == 2, "".join(said) + told + logs
    assert re.search(r"\b[1-9][0-9,]* tuples", windows[0]), windows[0]
    assert " of " not in windows[0], "fewer tuples were merged than promised"
    assert f"http://{addresses[1]}/metrics" in told
    assert f"http://{addresses[2]}/metrics" in told
    assert "lowmark.v1.results.talkers" in told
    assert "Traceback" not in told + logs


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "lowmark", "demo", "--keep", str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (2, f"error: {tmp_path / 'file'} cannot be written: File exists\n")
