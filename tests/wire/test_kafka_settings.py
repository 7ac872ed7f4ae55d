from __future__ import annotations

from pathlib import Path

import pytest

from lowmark.wire.kafka.settings import (
    KafkaSettings,
    KafkaSettingsError,
    SaslMechanism,
    Secret,
    SecurityProtocol,
    consumer_options,
    producer_options,
    spark_options,
    transactional_options,
)

PASSWORD = 'p"a\\ss'


@pytest.fixture
def secure(tmp_path: Path) -> KafkaSettings:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    (tmp_path / "ca.pem").touch()
    (tmp_path / "client.pem").touch()
    return KafkaSettings(
        "a:9093,[::1]:9093",
        SecurityProtocol.SASL_SSL,
        SaslMechanism.SCRAM_SHA_512,
        "alice",
        Secret(file=tmp_path / "password"),
        ssl_ca=tmp_path / "ca.pem",
        ssl_client=tmp_path / "client.pem",
    )


def test_both_clients_get_the_same(secure: KafkaSettings) -> None:
    assert secure.librdkafka() == {
        "bootstrap.servers": "a:9093,[::1]:9093",
        "client.id": "lowmark",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(secure.ssl_ca),
        "ssl.certificate.location": str(secure.ssl_client),
        "ssl.key.location": str(secure.ssl_client),
        "ssl.endpoint.identification.algorithm": "https",
    }
    spark = spark_options(secure)
    assert spark["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="p\\"a\\\\ss";'
    )
    assert spark["kafka.ssl.truststore.type"] == spark["kafka.ssl.keystore.type"] == "PEM"
    assert spark["kafka.ssl.truststore.location"] == str(secure.ssl_ca)
    assert spark["kafka.isolation.level"] == "read_committed"
    assert all(name.startswith("kafka.") for name in spark)


def test_secrets_are_never_shown(secure: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PASSWORD not in repr(secure) + str(secure)
    monkeypatch.setenv("LOWMARK_TEST_SECRET", "from the environment")
    secret = Secret(env="LOWMARK_TEST_SECRET")
    assert secret.read() == "from the environment"
    assert "from" not in repr(secret)


def test_delivery_guarantees() -> None:
    settings = KafkaSettings("localhost:9092")
    plain = producer_options(settings)
    assert (plain["enable.idempotence"], plain["acks"], plain["message.timeout.ms"]) == (True, "all", 0)
    transactional = transactional_options(settings, "job-1")
    assert transactional["transactional.id"] == "job-1"
    assert transactional["message.timeout.ms"] == transactional["transaction.timeout.ms"]
    reader = consumer_options(settings, "g", "error")
    assert reader["isolation.level"] == "read_committed"
    assert reader["enable.auto.commit"] is False


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"bootstrap": "localhost"}, "'localhost' is not host:port"), ({"bootstrap": "a:1,b:99999"}, "'b:99999'"),
     ({"bootstrap": ""}, "not host:port"), ({"bootstrap": "::1:9092"}, "not host:port"),
     ({"security": SecurityProtocol.SASL_SSL}, "needs sasl_mechanism, username and password"),
     ({"username": "alice"}, "do not go with PLAINTEXT"), ({"ssl_ca": Path("x")}, "do not go with PLAINTEXT"),
     ({"security": SecurityProtocol.SSL, "ssl_key_password": Secret(env="X")}, "no ssl_client")],
)  # fmt: skip
def test_contradictions_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(KafkaSettingsError) as refused:
        KafkaSettings(**{"bootstrap": "localhost:9092", **changes})
    assert said in str(refused.value)


def test_secrets_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOWMARK_TEST_SECRET", raising=False)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for secret, said in [
        (Secret(env="LOWMARK_TEST_SECRET"), "LOWMARK_TEST_SECRET, which should hold a secret, is not set"),
        (Secret(file=tmp_path / "none"), "cannot be read: No such file"),
        (Secret(file=tmp_path / "empty"), "is empty"),
        (Secret(file=tmp_path / "binary"), "not UTF-8"),
    ]:
        with pytest.raises(KafkaSettingsError, match=said):
            secret.read()
    with pytest.raises(KafkaSettingsError, match="give one of the two"):
        Secret()
