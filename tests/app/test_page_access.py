"""TLS and a token for the pages of a process, over real sockets."""

from __future__ import annotations

import logging
import os
import pty
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from prometheus_client import CollectorRegistry, Counter

from lowmark.app.config.file import load_config
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.health import Health, HealthServer
from lowmark.app.page_access import PageAccess
from lowmark.wire.kafka.settings import Secret
from tests.fixtures.certificates import Authority


@contextmanager
def served(access: PageAccess) -> Iterator[str]:
    registry = CollectorRegistry()
    Counter("lowmark_tests", "For this test.", registry=registry)
    ready = Health(False, {"kafka": "does not answer"})
    with HealthServer("127.0.0.1:0", "job.metrics", registry, lambda: ready, lambda: ready, access) as server:
        yield server.url


def get(url: str, token: str | None = None, ca: Path | None = None) -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": token}
    context = None if ca is None else ssl.create_default_context(cafile=ca)
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("open-sesame\n")
    return path


def test_a_token(token: Path) -> None:
    with served(PageAccess(token=Secret(file=token))) as url:
        for wrong in (None, "", "Bearer", "Bearer open", "Bearer open-sesame2", "open-sesame", "Bearer öpen"):
            assert get(f"{url}/metrics", wrong)[0] == 401, wrong
        status, page = get(f"{url}/metrics", "Bearer open-sesame")
        assert (status, "lowmark_tests_total" in page) == (200, True)


def test_a_token_may_have_any_letters(token: Path) -> None:
    token.write_text("öffne-dich")
    with served(PageAccess(token=Secret(file=token))) as url:
        assert get(f"{url}/metrics", "Bearer öffne-dich".encode().decode("latin-1"))[0] == 200
        assert get(f"{url}/metrics", "Bearer offne-dich")[0] == 401


def test_without_the_token_health_pages_show_the_status_alone(token: Path) -> None:
    with served(PageAccess(token=Secret(file=token))) as url:
        assert get(f"{url}/readyz") == (503, '{"status": "not ready"}\n')
        assert get(f"{url}/readyz", "Bearer open-sesame") == (
            503, '{"status": "not ready", "kafka": "does not answer"}\n',
        )  # fmt: skip


def test_a_token_rotates(token: Path, caplog: pytest.LogCaptureFixture) -> None:
    with served(PageAccess(token=Secret(file=token))) as url:
        token.write_text("other")
        assert get(f"{url}/metrics", "Bearer open-sesame")[0] == 401
        assert get(f"{url}/metrics", "Bearer other")[0] == 200
        token.unlink()
        with caplog.at_level(logging.WARNING, "lowmark.health"):
            assert get(f"{url}/metrics", "Bearer other")[0] == 401
    assert f"the secret in {token} cannot be read" in caplog.text
    assert "Bearer other" not in caplog.text


def test_tls_and_a_certificate_that_rotates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("pages")
    with served(PageAccess(certificate=certificate)) as url:
        assert url.startswith("https://127.0.0.1:")
        assert get(f"{url}/metrics", ca=authority.ca)[0] == 200
        first = serial(url)
        authority.issue("pages", timedelta(hours=2))
        assert get(f"{url}/metrics", ca=authority.ca)[0] == 200
        second = serial(url)
        assert second != first
        certificate.write_text("nothing")  # the one before goes on
        assert get(f"{url}/metrics", ca=authority.ca)[0] == 200
        assert serial(url) == second


def serial(url: str) -> str:
    host, _, port = url.removeprefix("https://").rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=10)


def test_clients_that_do_not_speak_tls_or_say_nothing_delay_nobody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    with served(PageAccess(certificate=authority.issue("pages"))) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert get(f"{url}/readyz", ca=authority.ca)[0] == 503
            plain.settimeout(10)
            assert b"lowmark_tests" not in plain.recv(4096)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("access", "said"),
    [
        (PageAccess(certificate=Path("/nowhere/pages.pem")), "/nowhere/pages.pem cannot be used: No such file"),
        (PageAccess(certificate=Path(os.devnull)), "cannot be used"),
        (PageAccess(token=Secret(file=Path("/nowhere/token"))), "/nowhere/token cannot be read"),
        (PageAccess(token=Secret(env="LOWMARK_NO_SUCH")), "LOWMARK_NO_SUCH"),
    ],
)
def test_files_that_cannot_be_used_are_refused_at_the_start(access: PageAccess, said: str) -> None:
    with pytest.raises(EnvironmentNotReady, match=said), served(access):
        pass


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    """On a terminal, too: at a rotation the question would stop all pages."""
    whole = Authority(tmp_path).issue("pages")
    key = load_pem_private_key(whole.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    kept = BestAvailableEncryption(b"secret")
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, kept) + whole.read_bytes())
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"from lowmark.app.page_access import *\nPageTls({str(locked)!r})"],
            stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, start_new_session=True, timeout=60, text=True,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    assert "locked.pem cannot be used" in done.stderr


def test_the_configuration(tmp_path: Path) -> None:
    """Paths are relative to the file."""
    path = tmp_path / "lowmark.toml"
    path.write_text(
        '[kafka]\nbootstrap = "h:1"\n[metrics]\ncertificate = "pages.pem"\ntoken = { file = "token" }\n'
        '[streams.Main]\nroster = ["a"]\n'
    )
    assert load_config(path).metrics == PageAccess(
        certificate=tmp_path / "pages.pem", token=Secret(file=tmp_path / "token")
    )
