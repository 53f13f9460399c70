"""JRaft, a Raft server in Java, by its authors: where its source is, and its classes with ours.

It is on no registry of packages, so it is compiled from source: from a folder that the environment
names, or from the very commit, cloned once beside the other things that tests need.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.patience import HUNG_S

TOP = Path(__file__).resolve().parents[2]
OWN = Path(__file__).parent / "jraft"
NAMED = "JRAFT_SOURCE"  # a folder in which its source lies, of COMMIT
URL = "https://github.com/datatechnology/jraft"
COMMIT = "fd772fa5866112222c6656fcacab3dde89c1321d"
# Of what is compiled of it, as `digest_of` has it.
DIGEST = "043114dd364869d8a41d925febb2f052e064e5207cd7628e6e3d4e940a6a7d9f"
CLONED = TOP / ".base" / "jraft"
PACKAGE = "src/main/java/net/data/technology/jraft"
# Of its extensions: log in files, carrier, words to people; not those for H2 and HTTP.
EXTENSIONS = (
    "AsyncUtility",
    "BinaryUtils",
    "FileBasedSequentialLogStore",
    "FileBasedServerStateManager",
    "Log4jLogger",
    "Log4jLoggerFactory",
    "Pair",
    "RpcTcpClient",
    "RpcTcpClientFactory",
    "RpcTcpListener",
)
JARS = ("gson-*.jar", "log4j-1.2-api-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")


def libraries() -> list[Path]:
    """What it needs beside itself; the jars come with PySpark."""
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    folder = Path(spark.origin).parent / "jars"
    return [path for pattern in JARS for path in folder.glob(pattern)]


def compiled_of(source: Path) -> list[Path]:
    """Its files that are compiled, in order."""
    core = sorted((source / "core" / PACKAGE).glob("*.java"))
    return [*core, *(source / "exts" / PACKAGE / f"extensions/{n}.java" for n in EXTENSIONS)]


def digest_of(source: Path) -> str:
    """SHA-256 over name and text of each file that is compiled."""
    digest = hashlib.sha256()
    for path in compiled_of(source):
        digest.update(str(path.relative_to(source)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def source() -> Path:
    """Where the source of COMMIT lies. AssertionError: what is wrong, and what to do."""
    named = os.environ.get(NAMED)
    folder = Path(named) if named else CLONED
    if not named and not CLONED.is_dir():
        clone(URL, CLONED)
    try:
        found = digest_of(folder)
    except OSError as error:
        raise AssertionError(f"{folder}: no source of JRaft ({error}); {_remedy()}") from error
    assert found == DIGEST, f"{folder}: not the text of JRaft's commit {COMMIT}; {_remedy()}"
    return folder


def _remedy() -> str:
    return f"remove it, or let {NAMED} name a folder with {URL} at {COMMIT}"


def clone(url: str, folder: Path) -> None:
    """COMMIT alone, whole or not at all."""
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    for words in (
        ["init", "--quiet"],
        ["fetch", "--quiet", "--depth", "1", url, COMMIT],
        ["checkout", "--quiet", "FETCH_HEAD"],
    ):
        done = subprocess.run(
            ["git", "-C", str(fresh), *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=HUNG_S,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(fresh)
            raise AssertionError(
                f"JRaft cannot be cloned from {url} ({done.stderr.strip()}); let {NAMED} name a "
                f"folder with its commit {COMMIT}"
            )
    fresh.rename(folder)


def make_classes(folder: Path) -> list[Path]:
    """Compile it with our server into `folder`: the class path of `ValueServer`."""
    javac = shutil.which("javac")
    assert javac is not None, "javac is missing: as root, apt-get install openjdk-17-jdk-headless"
    files: Iterable[Path] = [*compiled_of(source()), *sorted(OWN.glob("*.java"))]
    path = libraries()
    done = subprocess.run(
        [javac, "-J-Xmx256m", "-nowarn", "-encoding", "UTF-8", "-d", folder]
        + ["-cp", ":".join(map(str, path)), *files],
        capture_output=True,
        text=True,
        timeout=HUNG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [folder, *path]
