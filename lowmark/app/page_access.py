"""Who may read a process's pages: TLS with a certificate, and a token for all but the status."""

from __future__ import annotations

import hmac
import logging
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from socket import socket

from lowmark.app.errors import EnvironmentNotReady
from lowmark.wire.kafka.settings import KafkaSettingsError, Secret

__all__ = ["PageAccess", "PageTls"]

_LOG = logging.getLogger("lowmark.health")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAccess:
    """`certificate`: a PEM file with private key and chain; None: no TLS. `token`: None: everybody may read all."""

    certificate: Path | None = None
    token: Secret | None = None

    def check(self) -> None:
        """EnvironmentNotReady if a file cannot be used now."""
        if self.certificate is not None:
            PageTls(self.certificate)
        if self.token is not None:
            try:
                self.token.read()
            except KafkaSettingsError as error:
                raise EnvironmentNotReady(f"metrics.token: {error}", "the file holds the token alone") from None

    def allows(self, authorization: str) -> bool:
        """Whether a request with this header may read all. The token is read each time, so that it can rotate."""
        if self.token is None:
            return True
        try:
            wanted = f"Bearer {self.token.read()}"
        except KafkaSettingsError as error:
            _LOG.warning("metrics.token: %s; nobody may read the metrics", error)
            return False
        sent = authorization.encode("latin-1")  # as WSGI hands over the bytes of a header
        return hmac.compare_digest(sent, wanted.encode())


class PageTls:
    """Server side of TLS. A certificate that is replaced holds for the connections after that."""

    def __init__(self, certificate: Path) -> None:
        self._certificate = certificate
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._seen: tuple[int, int, int] | None = None
        try:
            self._load()
        except OSError as error:  # ssl.SSLError is one
            raise EnvironmentNotReady(
                f"metrics.certificate: {certificate} cannot be used: {error.strerror or error}",
                "it is a PEM file with a private key without password, and its certificate chain",
            ) from None

    def _load(self) -> None:
        at = os.stat(self._certificate)
        seen = (at.st_ino, at.st_mtime_ns, at.st_size)
        if seen != self._seen:
            self._context.load_cert_chain(self._certificate, password="")  # else OpenSSL asks a terminal for one
            self._seen = seen

    def wrap(self, connection: socket) -> ssl.SSLSocket:
        """The connection, whose handshake is made by its first reader: a slow client delays no other."""
        try:
            self._load()
        except OSError as error:
            _LOG.warning(
                "metrics.certificate: %s cannot be used: %s; the one before goes on", self._certificate,
                error.strerror or error,
            )  # fmt: skip
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
