"""A real HDFS on this machine: one NameNode and one DataNode, each a process, on loopback.

    hdfs.py fetch      the jars, by Maven, into .hdfs/jars; each must have its checksum in the list
    hdfs.py run        format a temporary folder, start both, say how to use them, until Ctrl-C
    hdfs.py sums       write the list of checksums anew, for a new version

The tests start one for a whole run (tests/system/hdfs_site.py), kill its parts and start them
again. Standard library only. Java 17 or newer and Maven are the machine's.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

TOP = Path(__file__).resolve().parent.parent
POM = TOP / "packaging" / "hdfs" / "pom.xml"
SUMS = TOP / "packaging" / "hdfs" / "jars.txt"
JARS = TOP / ".hdfs" / "jars"
HOST = "127.0.0.1"
PORTS_NEEDED = 5
USER = "tigerchat"
STARTS_WITHIN_S = 600.0
OPENED = (
    "java.lang",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.zip",
    "java.math",
    "java.text",
    "sun.nio.ch",
)
CLASSES = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
}
LOGGING = """\
rootLogger.level=INFO
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""


class HdfsError(Exception):
    """What went wrong and what to do, in one line."""


# --- jars -----------------------------------------------------------------------------------------


def fetch() -> None:
    """Have the jars of the list, unchanged, in `JARS`; nothing is done when they are there."""
    JARS.parent.mkdir(exist_ok=True)
    with open(JARS.parent / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete():
            return
        print(f"hdfs: fetching {len(read_sums())} jars by Maven", flush=True)
        fresh = JARS.with_name("jars.new")
        shutil.rmtree(fresh, ignore_errors=True)
        download(fresh)
        if difference := compare(sums_of(fresh), read_sums()):
            raise HdfsError(f"the jars are not those of {SUMS.relative_to(TOP)}: {difference}")
        shutil.rmtree(JARS, ignore_errors=True)
        fresh.rename(JARS)


def complete() -> bool:
    """Whether every jar of the list is there; their bytes were checked when they came."""
    return JARS.is_dir() and {path.name for path in JARS.iterdir()} == set(read_sums())


def download(folder: Path) -> None:
    """Let Maven resolve the pom into `folder`."""
    if shutil.which("mvn") is None:
        raise HdfsError("Maven is missing: as root, apt-get install --yes maven")
    command = [
        "mvn",
        "--quiet",
        "--batch-mode",
        "--file",
        str(POM),
        f"-Djars.folder={folder}",
        "generate-resources",
    ]
    done = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-15:]
        raise HdfsError("\n".join([*last, "Maven could not fetch the jars of HDFS; see above"]))


def sums_of(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def read_sums() -> dict[str, str]:
    rows = [line.split() for line in SUMS.read_text(encoding="ascii").splitlines()]
    return {name: digest for digest, name in rows}


def compare(found: dict[str, str], wanted: dict[str, str]) -> str:
    """What differs, in words; empty for nothing."""
    names = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    return ", ".join(names[:5]) + (" and more" if len(names) > 5 else "")


def write_sums() -> None:
    with tempfile.TemporaryDirectory() as folder:
        download(Path(folder) / "jars")
        found = sums_of(Path(folder) / "jars")
    SUMS.write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()))


# --- processes ------------------------------------------------------------------------------------


def free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    probes = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Tls(NamedTuple):
    """What HDFS needs to speak HTTPS only, and to hand out delegation tokens."""

    keystore: Path  # PKCS#12: a key, and its certificate for 127.0.0.1
    password: str
    ca_file: Path  # vouches for that certificate


class Hdfs:
    """One NameNode and one DataNode whose data lie in `folder`. A context manager."""

    def __init__(self, folder: Path, ports: Sequence[int], tls: Tls | None = None) -> None:
        self.folder, self.tls = folder, tls
        (self.rpc_port, self.http_port, self.data_port, self.data_http_port, self.data_ipc_port) = (
            ports[:PORTS_NEEDED]
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.forced = False  # into safe mode, by hand

    @property
    def url(self) -> str:
        """What a shipper's `ship_target` takes, without the folder."""
        return f"http{'s' if self.tls else ''}://{HOST}:{self.http_port}"

    @property
    def hdfs_url(self) -> str:
        """What Spark takes, without the folder."""
        return f"hdfs://{HOST}:{self.rpc_port}"

    @property
    def webhdfs_url(self) -> str:
        """What Spark takes over HTTP, without the folder."""
        return f"{'s' if self.tls else ''}webhdfs://{HOST}:{self.http_port}"

    def __enter__(self) -> Hdfs:
        self.format()
        with ExitStack() as undo:
            undo.callback(self.stop)
            self.start("namenode")
            self.start("datanode")
            self.wait_ready()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def format(self) -> None:
        """An empty file system."""
        for name in ("conf", "data", "log", "name", "tmp"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._configure()
        command = [
            *self._java(),
            CLASSES["namenode"],
            "-format",
            "-force",
            "-nonInteractive",
            "-clusterId",
            "CID-tigerchat",
        ]
        with open(self.folder / "log" / "format.log", "wb") as log:
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
            )
        if done.returncode != 0:
            raise HdfsError(f"the NameNode cannot format; see {log.name}")

    def start(self, name: str) -> None:
        """Start "namenode" or "datanode"; does not wait."""
        assert name not in self.processes
        with open(self.folder / "log" / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self._java(), CLASSES[name]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                preexec_fn=_die_with_parent,
            )

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def ensure(self) -> None:
        """Both run, data can be written: whatever a test before did."""
        for name in CLASSES:
            process = self.processes.get(name)
            if process is not None and process.poll() is not None:
                del self.processes[name]
            if name not in self.processes:
                self.start(name)
        if self.forced:
            self.safe_mode(False)
        self.wait_ready()

    def safe_mode(self, on: bool) -> None:
        """Let the NameNode refuse, or take again, all changes."""
        self._wait(self._answers, "the NameNode to answer")
        command = [
            *self._java(),
            "org.apache.hadoop.hdfs.tools.DFSAdmin",
            "-safemode",
            "enter" if on else "leave",
        ]
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self._environment(),
            text=True,
        )
        if done.returncode != 0:
            raise HdfsError(f"dfsadmin -safemode: {done.stderr.strip()[-300:]}")
        self.forced = on

    def stop(self) -> None:
        """Ask both to end; kill what does not."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    # --- looking

    def wait_ready(self) -> None:
        """A DataNode is registered, and the NameNode takes changes."""
        self._wait(self.ready, "HDFS to be ready")

    def ready(self) -> bool:
        state = self._bean("FSNamesystemState")
        info = self._bean("NameNodeInfo")
        if state is None or info is None:
            return False
        return state["NumLiveDataNodes"] >= 1 and info["Safemode"] == "" and self._data_answers()

    def _answers(self) -> bool:
        return self._bean("NameNodeInfo") is not None

    def _data_answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.data_http_port), 1.0):
                return True
        except OSError:
            return False

    def _bean(self, name: str) -> dict[str, Any] | None:
        query = f"{self.url}/jmx?qry=Hadoop:service=NameNode,name={name}"
        trust = ssl.create_default_context(cafile=self.tls.ca_file) if self.tls else None
        try:
            with urllib.request.urlopen(query, timeout=5.0, context=trust) as answer:
                beans: list[dict[str, Any]] = json.load(answer)["beans"]
                return beans[0] if beans else None
        except (OSError, urllib.error.URLError, ValueError):
            return None

    def _wait(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not condition():
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise HdfsError(f"the {name} ended; see {self.folder / 'log' / name}.log")
            if time.monotonic() > deadline:
                raise HdfsError(
                    f"waited {STARTS_WITHIN_S:.0f} s for {what}; see {self.folder / 'log'}"
                )
            time.sleep(0.1)

    # --- what they are told

    def _java(self) -> list[str]:
        java = shutil.which("java")
        if java is None:
            raise HdfsError(
                "Java is missing: as root, apt-get install --yes openjdk-17-jre-headless"
            )
        opened = [
            word for name in OPENED for word in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")
        ]
        return [
            java,
            *opened,
            "-Djava.net.preferIPv4Stack=true",
            "-Xmx320m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dhadoop.log.dir={self.folder / 'log'}",
            f"-Djava.io.tmpdir={self.folder / 'tmp'}",
            "-cp",
            f"{self.folder / 'conf'}:{JARS}/*",
        ]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HADOOP_USER_NAME": USER}

    def _configure(self) -> None:
        core = {
            "fs.defaultFS": f"hdfs://{HOST}:{self.rpc_port}",
            "hadoop.tmp.dir": str(self.folder / "tmp"),
            "hadoop.http.staticuser.user": USER,
        }
        names = ("https-address", "https.address") if self.tls else ("http-address", "http.address")
        addresses = {
            "dfs.namenode.rpc-address": self.rpc_port,
            f"dfs.namenode.{names[0]}": self.http_port,
            "dfs.datanode.address": self.data_port,
            f"dfs.datanode.{names[1]}": self.data_http_port,
            "dfs.datanode.ipc.address": self.data_ipc_port,
        }
        hdfs = {
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.name.dir": f"file://{self.folder / 'name'}",
            "dfs.datanode.data.dir": f"file://{self.folder / 'data'}",
            **{key: f"{HOST}:{port}" for key, port in addresses.items()},
            "dfs.datanode.hostname": HOST,
            "dfs.client.use.datanode.hostname": "true",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.safemode.extension": "0",
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "2000",
            "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
            "dfs.namenode.resource.du.reserved": "10485760",
        }
        tables = {"core-site": core, "hdfs-site": hdfs}
        if self.tls is not None:
            hdfs |= {
                "dfs.http.policy": "HTTPS_ONLY",
                "dfs.namenode.delegation.token.always-use": "true",
            }
            store = {
                "location": str(self.tls.keystore),
                "type": "pkcs12",
                "password": self.tls.password,
                "keypassword": self.tls.password,
            }
            tables["ssl-server"] = {
                f"ssl.server.keystore.{key}": value for key, value in store.items()
            }
        for name, table in tables.items():
            rows = "".join(
                f"<property><name>{key}</name><value>{value}</value></property>\n"
                for key, value in table.items()
            )
            path = self.folder / "conf" / f"{name}.xml"
            path.write_text(f"<configuration>\n{rows}</configuration>\n")
        (self.folder / "conf" / "log4j.properties").write_text(LOGGING)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


# --- by hand --------------------------------------------------------------------------------------

USAGE = """
HDFS runs; what is in it lies in {folder} and goes with Ctrl-C.

  browse           {url}/explorer.html
  ship to it       in node.toml of each node:  ship_target = "{url}/tigerchat"
                                               ship_user = "{user}"
  look             curl '{url}/webhdfs/v1/tigerchat?op=LISTSTATUS&user.name={user}'
  Spark            {hdfs}/tigerchat
"""


def run() -> None:
    """Until Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="hdfs-") as folder:
        print("hdfs: formatting and starting", flush=True)
        with Hdfs(Path(folder), free_ports(PORTS_NEEDED)) as hdfs:
            print(
                USAGE.format(folder=folder, url=hdfs.url, user=USER, hdfs=hdfs.hdfs_url), flush=True
            )
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            try:
                while all(process.poll() is None for process in hdfs.processes.values()):
                    time.sleep(0.5)
            except KeyboardInterrupt:
                print("hdfs: stopping", flush=True)
                return
            raise HdfsError("one of the two ended by itself")


def main(arguments: list[str]) -> int:
    commands = {"fetch": fetch, "run": run, "sums": write_sums}
    if len(arguments) != 1 or arguments[0] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        if arguments[0] == "run":
            fetch()
        commands[arguments[0]]()
    except HdfsError as error:
        print(f"hdfs: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
