"""The folder of a broker: its marker, its lock, its settings and its logs.

It is the broker's working directory and holds `cluster.id` (marks it as ours), `data/` (topics), `broker.log`
(log4j2, rolling), `broker.out` (output of the JVM itself) and `lock` (held while a broker lives there).
"""

from __future__ import annotations

import base64
import fcntl
import uuid
from pathlib import Path
from typing import IO

from lowmark.app.errors import EnvironmentNotReady, StartRefused

_LAST_LINES = 10
# May be in a folder that is not yet ours: in the root of a mounted volume, or after an interrupted start.
_HARMLESS = {"lock", "lost+found"}

# Internal topics have few partitions, and the cleaner's buffer is small, because the heap is. The session is shorter
# than Kafka's own 9 s, because a killed broker can register again only after its old session ends. Everyone may do
# everything until somebody adds an access rule, which then holds as on a cluster.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=CLIENT://{address},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=CLIENT://{address}
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=CLIENT
log.dirs=data
auto.create.topics.enable=false
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
log.cleaner.dedupe.buffer.size=16777216
"""

_LOGGING = """\
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName=broker.log
appender.file.filePattern=broker.%i.log
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %p %m (%c)%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=10MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=3
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""


class BrokerFolder:
    """One folder, from `take` to `release`; nothing happens before `take`."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.log = self.path / "broker.log"
        self.output = self.path / "broker.out"
        self._lock: IO[str] | None = None
        self._log_start = 0

    def take(self) -> str:
        """Lock the folder for one broker; returns its cluster id, a new one for a new folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        marker = self.path / "cluster.id"
        held = {entry.name for entry in self.path.iterdir()}
        if foreign := sorted(held - _HARMLESS) if marker.name not in held else []:
            raise StartRefused(
                f"{self.path} is not a folder of lowmark's broker: it holds {', '.join(foreign[:4])}",
                "give an empty or a new folder",
            )
        self._lock = (self.path / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "which is starting"
            raise EnvironmentNotReady(
                f"{self.path} is in use by a live broker, {holder}", "use that broker, end it, or give another folder"
            ) from None
        self._lock.truncate(0)
        cluster_id = marker.read_text().strip() if marker.exists() else ""
        stored = self.stored_cluster_id()
        if stored is not None and stored != cluster_id:
            raise StartRefused(
                f"{self.path / 'data'} holds topics of another cluster: its id there is {stored or 'missing'}, and "
                f"{cluster_id or 'missing'} in {marker}",
                "restore the whole folder from one backup, or give another folder",
            )
        if not cluster_id:
            # 128 bits in Kafka's own alphabet; with this first letter its tools do not take the id for an option.
            cluster_id = "L" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
            marker.write_text(cluster_id + "\n")
        return cluster_id

    def stored_cluster_id(self) -> str | None:
        """The cluster id in the data, which Kafka writes last when it formats; None before that."""
        try:
            lines = (self.path / "data" / "meta.properties").read_text().splitlines()
        except FileNotFoundError:
            return None
        return next((line.partition("=")[2].strip() for line in lines if line.startswith("cluster.id=")), "")

    def configure(self, address: str, controller_port: int) -> None:
        """Write the settings for a start at `address` (`host:port`), and remember where its log begins."""
        properties = _PROPERTIES.format(address=address, controller_port=controller_port)
        (self.path / "server.properties").write_text(properties)
        (self.path / "log4j2.properties").write_text(_LOGGING)
        self.output.write_bytes(b"")
        self._log_start = self.log.stat().st_size if self.log.exists() else 0

    def lock_descriptor(self) -> int:
        """Descriptor that the broker inherits: the folder stays taken while it lives, even without its parent."""
        assert self._lock is not None
        return self._lock.fileno()

    def note_holder(self, text: str) -> None:
        """Records the holder, for the error that a second broker in this folder gets."""
        assert self._lock is not None
        self._lock.truncate(0)
        self._lock.write(text + "\n")
        self._lock.flush()

    def last_lines(self) -> tuple[str, ...]:
        """The end of what this start logged and printed, without the frames of stack traces. What it printed comes
        last, because the log is full of settings."""
        text = b""
        if self.log.exists():
            content = self.log.read_bytes()
            text += content[self._log_start :] if len(content) >= self._log_start else content  # it has rolled over
        if self.output.exists():
            text += self.output.read_bytes()
        lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
        return tuple([line for line in lines if not line.startswith(("\tat ", "\t... "))][-_LAST_LINES:])

    def release(self) -> None:
        """Releases the folder once no broker lives in it; does nothing when it is not taken."""
        if self._lock is not None:
            # Closing is not enough: a forked process may hold a copy of the descriptor, and with it the lock.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock.close()
            self._lock = None
