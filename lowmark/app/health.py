"""The HTTP endpoint of a process: /metrics for Prometheus, /healthz (alive), /readyz (does its work)."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.page_access import PageAccess, PageTls
from lowmark.helpers import Helper

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

__all__ = ["REFUSED", "Health", "HealthServer", "living", "parse_listen"]

REFUSED = "configuration refused"
"""The entry of a page that says why the present configuration is not in use."""

_LOOK_S = 0.5

_REQUEST_WITHIN_S = 10.0
"""Limit for a client to send its request or take its answer; a thread is bound by it."""


@dataclass(frozen=True, slots=True)
class Health:
    """The outcome of one check; `detail` is shown on the page."""

    ok: bool
    detail: Mapping[str, str]


Check = Callable[[], Health]


def living(helpers: Iterable[Helper]) -> Health:
    """Whether all these threads live; `detail` has the state of each by name."""
    states = {helper.name: (helper.failure is None, helper.state) for helper in helpers}
    return Health(all(lives for lives, _ in states.values()), {name: state for name, (_, state) in states.items()})


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    tls: PageTls | None = None

    def get_request(self) -> tuple[socket.socket, object]:
        connection, client = super().get_request()
        return (connection if self.tls is None else self.tls.wrap(connection)), client

    def handle_error(self, request: object, client_address: object) -> None:
        """Does not report a client that goes away, is slow, or does not speak TLS."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # typeshed names the types only


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    timeout = _REQUEST_WITHIN_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Requests are not logged."""


def parse_listen(text: str) -> tuple[str, int]:
    """`127.0.0.1:9464` or `[::1]:9464`; port 0: any free port. ValueError for other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535 or not host:
        raise ValueError(f"{text!r} is not an address to listen on: write host:port, for example 127.0.0.1:9464")
    return host.strip("[]"), int(port)


class HealthServer:
    """Inert until `start()`. Serves from its own thread, `helper`."""

    def __init__(
        self, listen: str, key: str, registry: CollectorRegistry, ready: Check, alive: Check,
        access: PageAccess = PageAccess(),  # noqa: B008  # it is frozen
    ) -> None:  # fmt: skip
        """`key`: the configuration key that sets `listen`, for error messages."""
        self._access = access
        self.helper = Helper("health", self._serve, (OSError,))
        self._listen = listen
        self._key = key
        self._checks: dict[str, Check] = {"/readyz": ready, "/healthz": alive}
        self._metrics = make_wsgi_app(registry)
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None, "not started"
        host, port = self._server.server_address[:2]
        scheme = "http" if self._access.certificate is None else "https"
        shown = f"[{host!s}]" if self._server.address_family == socket.AF_INET6 else f"{host!s}"
        return f"{scheme}://{shown}:{port}"

    def start(self) -> None:
        """EnvironmentNotReady if it cannot listen on the address, or a file of its access cannot be used."""
        self._access.check()
        host, port = parse_listen(self._listen)
        try:
            kind = _Server6 if ":" in host else _Server
            self._server = make_server(host, port, self._answer, server_class=kind, handler_class=_Quiet)
            if self._access.certificate is not None:
                self._server.tls = PageTls(self._access.certificate)
        except OSError as error:
            raise EnvironmentNotReady(
                f"cannot serve metrics on {self._listen}: {error.strerror}",
                f"give each process on a host its own address: {self._key} in the configuration; port 0: a free one",
            ) from None
        self._server.timeout = _LOOK_S
        self.helper.start()

    def stop(self) -> None:
        self.helper.stop()
        if self._server is not None:
            self._server.server_close()

    def __enter__(self) -> HealthServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _serve(self, stopping: threading.Event) -> None:
        assert self._server is not None, "not started"
        while not stopping.is_set():
            self._server.handle_request()

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        whole = self._access.allows(environ.get("HTTP_AUTHORIZATION", ""))
        if path == "/metrics" and not whole:
            return _page(start_response, "401 Unauthorized", {"status": "give the token: Authorization: Bearer …"})
        if path == "/metrics":
            metrics: Iterable[bytes] = self._metrics(environ, start_response)
            return metrics
        check = self._checks.get(path)
        if check is None:
            return _page(start_response, "404 Not Found", {"paths": "/metrics /healthz /readyz"})
        health = check()
        status = "200 OK" if health.ok else "503 Service Unavailable"
        detail = health.detail if whole else {}  # probes have no token, and need the status alone
        return _page(start_response, status, {"status": "ok" if health.ok else "not ready", **detail})


def _page(start_response: StartResponse, status: str, body: Mapping[str, str]) -> list[bytes]:
    text = json.dumps(body, ensure_ascii=False).encode() + b"\n"
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(text)))]
    start_response(status, headers + ([("WWW-Authenticate", "Bearer")] if status.startswith("401") else []))
    return [text]
