"""One configuration of the connection to Kafka, rendered for both clients: librdkafka and, for Spark, Java's.

Secrets are given as a file or an environment variable, read when the configuration is rendered, and never shown.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from lowmark.wire.kafka.topics import MAX_MESSAGE_BYTES

__all__ = [
    "TRANSACTION_TIMEOUT_MS", "KafkaSettings", "KafkaSettingsError", "SaslMechanism", "Secret", "SecurityProtocol",
    "consumer_options", "producer_options", "spark_options", "transactional_options",
]  # fmt: skip

Options = dict[str, str | int | bool]

TRANSACTION_TIMEOUT_MS = 60_000
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


class KafkaSettingsError(ValueError):
    """The configuration is wrong: the message says where and what would be right."""


class SecurityProtocol(Enum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class SaslMechanism(Enum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is: a file (without its final line end) or an environment variable."""

    file: Path | None = None
    env: str | None = None

    def __post_init__(self) -> None:
        if (self.file is None) == (self.env is None):
            raise KafkaSettingsError("a secret is in a file or in an environment variable: give one of the two")

    def read(self) -> str:
        if self.env is not None:
            value = os.environ.get(self.env)
            if not value:
                raise KafkaSettingsError(f"the environment variable {self.env}, which should hold a secret, is not set")
            return value
        assert self.file is not None
        try:
            content = self.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise KafkaSettingsError(f"the secret in {self.file} cannot be read: {reason}") from None
        secret = content.removesuffix("\n").removesuffix("\r")
        if not secret:
            raise KafkaSettingsError(f"the file {self.file}, which should hold a secret, is empty")
        return secret


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach Kafka. All programs, including Spark's executors, find the files at the same paths."""

    bootstrap: str  # host:port, several separated by commas
    security: SecurityProtocol = SecurityProtocol.PLAINTEXT
    sasl_mechanism: SaslMechanism | None = None
    username: str | None = None
    password: Secret | None = None
    ssl_ca: Path | None = None  # PEM; None: the system's
    ssl_client: Path | None = None  # PEM: this client's private key (PKCS #8) and its certificate chain, in one file
    ssl_key_password: Secret | None = None
    ssl_verify_hostname: bool = True
    client_id: str = "lowmark"

    def __post_init__(self) -> None:
        for server in self.bootstrap.split(","):
            match = _HOST.fullmatch(server.strip())
            if match is None or not 0 < int(match[2]) < 65_536:
                raise KafkaSettingsError(f"bootstrap: {server.strip()!r} is not host:port")
        sasl = (self.sasl_mechanism, self.username, self.password)
        if "SASL" in self.security.value and None in sasl:
            raise KafkaSettingsError(f"{self.security.value} needs sasl_mechanism, username and password")
        if "SASL" not in self.security.value and sasl != (None, None, None):
            raise KafkaSettingsError(f"sasl_mechanism, username and password do not go with {self.security.value}")
        if not self._tls and (self.ssl_ca or self.ssl_client or self.ssl_key_password):
            raise KafkaSettingsError(f"ssl_ca, ssl_client and ssl_key_password do not go with {self.security.value}")
        if self.ssl_key_password and not self.ssl_client:
            raise KafkaSettingsError("ssl_key_password is given, but no ssl_client whose key it opens")

    @property
    def _tls(self) -> bool:
        return self.security in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    def state_of_files(self) -> tuple[tuple[int, ...], ...]:
        """Changes when a certificate or secret file is replaced. A client keeps those that it was made with."""
        secrets = (self.password, self.ssl_key_password)
        files = [self.ssl_ca, self.ssl_client, *(secret.file for secret in secrets if secret is not None)]
        return tuple(_state_of(file) for file in files if file is not None)

    def librdkafka(self) -> Options:
        """The options that all librdkafka clients share. They hold secrets: do not print them."""
        options: Options = {
            "bootstrap.servers": self.bootstrap,
            "client.id": self.client_id,
            "security.protocol": self.security.value,
        }
        if self.sasl_mechanism and self.username and self.password:
            options["sasl.mechanism"] = self.sasl_mechanism.value
            options["sasl.username"] = self.username
            options["sasl.password"] = self.password.read()
        if self._tls:
            options["ssl.endpoint.identification.algorithm"] = "https" if self.ssl_verify_hostname else "none"
        if self.ssl_ca:
            options["ssl.ca.location"] = _readable("ssl_ca", self.ssl_ca)
        if self.ssl_client:
            options["ssl.certificate.location"] = options["ssl.key.location"] = _readable("ssl_client", self.ssl_client)
        if self.ssl_key_password:
            options["ssl.key.password"] = self.ssl_key_password.read()
        return options

    def java(self) -> dict[str, str]:
        """The same for the Java client. They hold secrets, under names that Spark redacts."""
        options = {"bootstrap.servers": self.bootstrap, "security.protocol": self.security.value}
        if self.sasl_mechanism and self.username and self.password:
            options["sasl.mechanism"] = self.sasl_mechanism.value
            options["sasl.jaas.config"] = _jaas(self.sasl_mechanism, self.username, self.password.read())
        if self._tls:
            options["ssl.endpoint.identification.algorithm"] = "https" if self.ssl_verify_hostname else ""
        if self.ssl_ca:
            options["ssl.truststore.type"] = "PEM"
            options["ssl.truststore.location"] = _readable("ssl_ca", self.ssl_ca)
        if self.ssl_client:
            options["ssl.keystore.type"] = "PEM"
            options["ssl.keystore.location"] = _readable("ssl_client", self.ssl_client)
        if self.ssl_key_password:
            options["ssl.key.password"] = self.ssl_key_password.read()
        return options


def _state_of(file: Path) -> tuple[int, ...]:
    try:
        at = file.stat()
    except OSError:  # the file is being replaced
        return ()
    return at.st_ino, at.st_mtime_ns, at.st_size


def _readable(name: str, file: Path) -> str:
    try:
        with file.open("rb"):
            return str(file)
    except OSError as error:
        raise KafkaSettingsError(f"{name}: {file} cannot be read: {error.strerror}") from None


def _jaas(mechanism: SaslMechanism, username: str, password: str) -> str:
    name = "plain.PlainLoginModule" if mechanism is SaslMechanism.PLAIN else "scram.ScramLoginModule"
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (username, password))
    return 'org.apache.kafka.common.security.{} required username="{}" password="{}";'.format(name, *quoted)


def producer_options(settings: KafkaSettings, linger_ms: int = 5) -> Options:
    """Idempotent, acknowledged by all replicas. Messages never expire: they are sent again until they arrive."""
    return settings.librdkafka() | {
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": "lz4",
        "linger.ms": linger_ms,
        "message.max.bytes": MAX_MESSAGE_BYTES,
        "message.timeout.ms": 0,
    }


def transactional_options(
    settings: KafkaSettings, transactional_id: str, linger_ms: int = 0, timeout_ms: int = TRANSACTION_TIMEOUT_MS
) -> Options:
    """Like `producer_options`, but messages that a transaction cannot deliver in time fail with the transaction."""
    return producer_options(settings, linger_ms) | {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": timeout_ms,
    }


def consumer_options(settings: KafkaSettings, group: str, reset: str = "earliest") -> Options:
    """Reads committed records only, and commits offsets only on request. `reset`: earliest, latest or error."""
    return settings.librdkafka() | {
        "group.id": group,
        "auto.offset.reset": reset,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.message.max.bytes": MAX_MESSAGE_BYTES,
    }


def spark_options(settings: KafkaSettings) -> dict[str, str]:
    """Options of Spark's Kafka source: those of the Java client, with the prefix that Spark requires."""
    options = settings.java() | {
        "isolation.level": "read_committed",
        "max.partition.fetch.bytes": str(MAX_MESSAGE_BYTES),
    }
    return {f"kafka.{name}": value for name, value in options.items()}
