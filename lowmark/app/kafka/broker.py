"""A real Kafka broker for the demo, tests and single hosts: one node in KRaft mode, kept in one folder."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka.broker_folder import BrokerFolder
from lowmark.app.kafka.jars import BROKER, classpath, obtain
from lowmark.app.kafka.java import Progress, find_java
from lowmark.app.service_manager import ServiceManager

LOOPBACK = "127.0.0.1"
_READY_WITHIN = 120.0  # seconds; 2 to 8 are usual
_STOP_WITHIN = 30.0
_LOOK_EVERY = 1.0
_ANSWER_WITHIN = 5.0
_PORT_ATTEMPTS = 3

_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java options of a program that ends at once: it starts in half the CPU time."""

# Turns itself into the JVM, which the kernel kills when the thread that started it ends. A separate process, because
# code between fork and exec can deadlock in a program with threads.
_TIED = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class Broker:
    """A broker in `data_dir`; nothing happens before `start`.

    `port` 0: a free port, chosen at every start. With `die_with_parent` the broker is killed when the thread that
    called `start` ends in any way: call it from a thread that stays. The broker never gets signals of the terminal.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        host: str = LOOPBACK,
        *,
        die_with_parent: bool = True,
        progress: Progress = lambda text: None,
    ) -> None:
        self._folder = BrokerFolder(data_dir)
        self._wanted_port = port
        self._host = host
        self._die_with_parent = die_with_parent
        self._progress = progress
        self._process: subprocess.Popen[bytes] | None = None
        self._address: str | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients; only while started."""
        if self._address is None:
            raise RuntimeError("the broker is not started")
        return self._address

    @property
    def pid(self) -> int:
        """The JVM's process id; only while started."""
        if self._process is None:
            raise RuntimeError("the broker is not started")
        return self._process.pid

    def start(self) -> None:
        """Return when the broker answers clients; raises EnvironmentNotReady, leaving nothing running."""
        if self._process is not None:
            raise RuntimeError("the broker is started already")
        try:
            cluster_id = self._folder.take()
            _found_by_clients(self._host)
            _free_port(self._host, self._wanted_port)  # refused before anything is fetched
            java = find_java()
            jars = obtain(BROKER, java=java, progress=self._progress)
            command = [str(java.executable), "-Xmx512m", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true"]
            command += ["-Dlog4j2.configurationFile=log4j2.properties", "-cp", classpath(jars)]
            for left in reversed(range(_PORT_ATTEMPTS)):
                self._address = self._choose_address()
                self._folder.configure(self._address, controller_port=_free_port(LOOPBACK, 0))
                self._format(command, cluster_id)
                self._launch([*command, "kafka.Kafka", "server.properties"])
                if self._await_ready(cluster_id):
                    return
                taken = any("Address already in use" in line for line in self._folder.last_lines())
                if not (left and taken):  # a port that was free a moment ago may be lost to another process
                    raise self._failure(f"the broker ended while it started{_killed(self._process)}")
        except subprocess.TimeoutExpired as error:
            self.stop()
            raise self._failure(f"the broker's folder was not prepared within {_READY_WITHIN:.0f} s") from error
        except OSError as error:
            self.stop()
            raise EnvironmentNotReady(
                f"the broker cannot use {error.filename or self._folder.path}: {error.strerror}",
                "give the broker a folder that can be written",
            ) from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the broker cleanly, by force after 30 s; does nothing when it is not running."""
        process, self._process, self._address = self._process, None, None
        try:
            if process is not None:
                process.terminate()
                process.wait(_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            pass
        finally:  # also when an impatient second Ctrl-C ends the wait
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
            self._folder.release()

    def wait(self, look: Callable[[], None] = lambda: None) -> None:
        """Block for as long as the broker lives, with a call of `look` each second; raises EnvironmentNotReady when it
        ends by itself."""
        if self._process is None:
            raise RuntimeError("the broker is not started")
        while True:
            try:
                self._process.wait(_LOOK_EVERY)
            except subprocess.TimeoutExpired:
                look()
            else:
                raise self._failure(f"the broker ended{_killed(self._process)}")

    def answers(self) -> bool:
        """Whether it answers a client within 5 s."""
        try:
            return bool(self._client().list_topics(timeout=_ANSWER_WITHIN).brokers)
        except KafkaException:
            return False

    def _choose_address(self) -> str:
        port = _free_port(self._host, self._wanted_port)
        return f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"

    def _format(self, command: list[str], cluster_id: str) -> None:
        if self._folder.stored_cluster_id() is not None:
            return
        self._progress("preparing the broker's folder")
        java, *options = command
        command = [java, *_SHORT_LIVED, *options, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
        command += ["-t", cluster_id, "-c", "server.properties"]
        with self._folder.output.open("wb") as output:
            done = subprocess.run(
                command,
                cwd=self._folder.path,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_READY_WITHIN,
            )
        if done.returncode:
            raise self._failure(f"the broker's folder could not be prepared{_killed(done)}")

    def _launch(self, command: list[str]) -> None:
        self._progress("starting the broker")
        if self._die_with_parent and sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *command]
        with self._folder.output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder.path,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(self._folder.lock_descriptor(),),
            )
        self._folder.note_holder(f"process {self._process.pid} at {self._address}")

    def _await_ready(self, cluster_id: str) -> bool:
        """True when this cluster answers a client; False when the process ended before that."""
        assert self._process is not None
        client = self._client()
        deadline = time.monotonic() + _READY_WITHIN
        while time.monotonic() < deadline:
            try:
                metadata = client.list_topics(timeout=1.0)
                if metadata.cluster_id == cluster_id and metadata.brokers:
                    return True
            except KafkaException:
                pass  # not yet
            try:
                self._process.wait(0.05)
                return False
            except subprocess.TimeoutExpired:
                pass
        raise self._failure(f"the broker did not answer at {self.bootstrap} within {_READY_WITHIN:.0f} s")

    def _client(self) -> AdminClient:
        return AdminClient(
            {
                "bootstrap.servers": self.bootstrap,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,  # refused connections are expected here
                "error_cb": lambda error: None,
            }
        )

    def _failure(self, message: str) -> EnvironmentNotReady:
        hint = f"the end of its log is above; the whole log is in {self._folder.log} and {self._folder.output}"
        return EnvironmentNotReady(message, hint, self._folder.last_lines())


def _killed(process: subprocess.Popen[bytes] | subprocess.CompletedProcess[bytes] | None) -> str:
    """The end of a sentence about a process that has ended."""
    code = 0 if process is None else process.returncode
    return f", killed by {signal.Signals(-code).name}" if code < 0 else ""


def openness(host: str) -> str | None:
    """A warning about who can reach a broker on this address; None if only this host can."""
    try:
        found = {ip_address(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, ValueError):  # the start says that it is no address
        return None
    if all(address.is_loopback for address in found):
        return None
    return (
        f"everybody who reaches {host} may read, write and delete all topics, and so learn what passes on the network "
        "and forge results: this broker has no TLS and no users. Let a firewall keep others away, or use a cluster "
        "with users (docs/security.md)"
    )


def loopback() -> str:
    """The loopback address that Kafka's clients on this host find."""
    return LOOPBACK if _is_found(LOOPBACK) else "::1"


def _found_by_clients(host: str) -> None:
    if not _is_found(host):
        raise EnvironmentNotReady(
            f"Kafka's clients on this host find no address for {host}: its interfaces have IPv6 addresses alone",
            'use `--host ::1` and bootstrap = "[::1]:9092", or give an interface an IPv4 address',
        )


def _is_found(host: str) -> bool:
    """librdkafka asks only for the kinds of addresses that this host's interfaces have; loopback does not count."""
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except socket.gaierror as error:
        return error.errno != socket.EAI_ADDRFAMILY
    return True


def _free_port(host: str, port: int) -> int:
    """`port` if this process can listen on it; for 0, a free port."""
    if host in {"0.0.0.0", "::", ""}:
        raise EnvironmentNotReady(
            f"the broker cannot tell clients to connect to {host or 'an empty address'}",
            "give the address or name of this host that its clients use",
        )
    if not 0 <= port <= 65535:
        raise EnvironmentNotReady(f"there is no port {port}", "give one from 1 to 65535, or 0 for any that is free")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka does
            listener.bind(address)
            return int(listener.getsockname()[1])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise EnvironmentNotReady(
                f"port {port} of {host} is in use by another process", "end that process, or choose another port"
            ) from error
        raise EnvironmentNotReady(
            f"the broker cannot listen on {host}:{port}: {error.strerror}",
            "give an address of this host, and a port that this user may listen on",
        ) from error


def serve(
    data_dir: Path,
    *,
    port: int = 9092,
    host: str = LOOPBACK,
    progress: Progress = lambda text: None,
    ready: Callable[[str], None] = lambda bootstrap: None,
) -> None:
    """Runs a broker in the foreground until SIGINT or SIGTERM; `ready` gets its address once it answers.

    Call it from the main thread. Raises EnvironmentNotReady if the broker cannot start or ends by itself.
    """
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    service = ServiceManager()
    progress = service.shown_too(progress)
    try:
        with Broker(data_dir, port, host, progress=progress) as broker:

            def look() -> None:
                if service.due() and broker.answers():
                    service.worked()

            try:
                ready(broker.bootstrap)
                service.status(f"broker ready at {broker.bootstrap}")
                service.ready()
                broker.wait(look)
            finally:
                service.stopping()
    except KeyboardInterrupt:
        progress("the broker has ended")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
