"""Sets up `.venv` with exactly what the locks say: node, report, check, executable, image or tests.

    setup.py tests -- COMMAND     and run COMMAND once `.venv` is there, beside what is fetched yet

Runs before anything is installed, so it is standard library only and asks no more of the machine
than python3. Registries and certificates come from the machine's own apt and pip settings.
Doing nothing must be fast (a stamp in `.venv` holds the digests of the locks it was filled from),
and two at once must be safe (a lock on a file beside `.venv`).
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LOCKS = TOP / "packaging" / "locks"
VENV = TOP / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed-locks"
# the other implementation of Scalable Data Sync that tests run against: its lock, where it lies
SDS_LOCK, SDS = TOP / "tests" / "interoperability" / "sds", TOP / ".sds"
COMMAND = VENV / "bin" / "tigerchat"
PYTHON_VERSION = (3, 11)  # the locks hold hashes resolved for this one
JAVA_VERSION_MIN = 17
LOG_LINES_SHOWN = 40  # of pip's output, when it failed
PAUSES_S = (10, 60)  # before what a network may have failed is tried again; pip and apt do so too

# Settings under which pip would install somewhere else than into `.venv`.
PIP_SETTINGS_DROPPED = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")

# Everything that may become stale in a lock and yet must not name where it was made.
COMPILE_OPTIONS = (
    "--quiet --upgrade --generate-hashes --strip-extras --allow-unsafe --no-emit-options "
    "--no-emit-index-url --no-emit-find-links --no-emit-trusted-host"
).split()


class SetupError(Exception):
    """What went wrong and what to do, in one line; `exit_code` 2 asks the operator to act."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Package:
    """A Debian package, and how to see that what it brings is there, wherever it came from."""

    name: str
    present: Callable[[], bool]


def has_program(*names: str) -> Callable[[], bool]:
    return lambda: any(shutil.which(name) for name in names)


def has_file(*paths: str) -> Callable[[], bool]:
    return lambda: any(Path(path).exists() for path in paths)


def has_venv() -> bool:
    """Debian's python3 has `venv` without the wheels it needs: those are in python3-venv."""
    return all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))


def has_python_headers() -> bool:
    return Path(sysconfig.get_path("include"), "Python.h").exists()


def has_java() -> bool:
    """Spark and HDFS need Java 17; an older one that is found first would be taken."""
    if shutil.which("java") is None:
        return False
    told = subprocess.run(["java", "-version"], check=False, capture_output=True, text=True)
    version = re.search(r'version "(\d+)', told.stderr + told.stdout)
    return version is not None and int(version[1]) >= JAVA_VERSION_MIN


def has_libsystemd() -> bool:
    if shutil.which("pkg-config") is None:
        return False
    return subprocess.run(["pkg-config", "--exists", "libsystemd"], check=False).returncode == 0


BUILD_PACKAGES = (
    Package("python3-venv", has_venv),
    Package("python3-dev", has_python_headers),
    Package("gcc", has_program("cc", "gcc")),
    Package("libc6-dev", has_file("/usr/include/stdio.h")),
    Package("pkg-config", has_program("pkg-config")),
    Package("libsystemd-dev", has_libsystemd),
)
BROWSER_PACKAGES = (
    Package("chromium", has_program("chromium")),
    Package("fonts-dejavu-core", has_file("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")),
)
JAVA_PACKAGES = (Package("openjdk-17-jre-headless", has_java),)
MAVEN_PACKAGES = (Package("maven", has_program("mvn")),)  # fetches the jars of HDFS
NODE_PACKAGES = (Package("npm", has_program("npm")),)
# A real HTTP proxy, through which members of a farm are dialled; without the service around it.
PROXY_PACKAGES = (Package("tinyproxy-bin", has_program("tinyproxy")),)
# Clients and attackers that others wrote: one of HTTP/3, one whose requests never end.
CLIENT_PACKAGES = (
    Package("ngtcp2-client", has_program("gtlsclient")),
    Package("slowhttptest", has_program("slowhttptest")),
)
FAULT_PACKAGES = (
    Package("iproute2", has_program("ip")),
    Package("nftables", has_program("nft")),
    Package("strace", has_program("strace")),
    Package("systemd", has_program("systemd-analyze")),
    Package(
        "libfaketime",
        has_file(
            *(
                f"/usr/lib/{machine}-linux-gnu/faketime/libfaketimeMT.so.1"
                for machine in ("x86_64", "aarch64")
            )
        ),
    ),
)

CHROOT_PACKAGES = (
    Package("debootstrap", has_program("debootstrap")),
    Package("systemd-container", has_program("systemd-nspawn")),
)
FREEZE_PACKAGES = (Package("binutils", has_program("strip")),)
# What puts a disk image together.
DISK_PACKAGES = (
    Package("dosfstools", has_program("mkfs.vfat")),
    Package("e2fsprogs", has_program("mke2fs")),
    Package("fdisk", has_program("sfdisk")),
    Package("mtools", has_program("mcopy")),
    Package("systemd-boot-efi", has_file("/usr/lib/systemd/boot/efi/linuxx64.efi.stub")),
)
# A machine to start it in: large, and wanted by a test of `make soak` alone.
GUEST_PACKAGES = (
    Package("ovmf", has_file("/usr/share/OVMF/OVMF_CODE_4M.fd")),
    Package("qemu-system-x86", has_program("qemu-system-x86_64")),
)
TEST_PACKAGES = (
    *BUILD_PACKAGES,
    *BROWSER_PACKAGES,
    *FAULT_PACKAGES,
    *PROXY_PACKAGES,
    *CLIENT_PACKAGES,
    *JAVA_PACKAGES,
    *MAVEN_PACKAGES,
    *FREEZE_PACKAGES,
    *CHROOT_PACKAGES,
    *DISK_PACKAGES,
    *NODE_PACKAGES,
)

# environment -> (locks, Debian packages); `build` precedes all: it compiles what has no wheel.
ENVIRONMENTS: dict[str, tuple[tuple[str, ...], tuple[Package, ...]]] = {
    "node": (("build", "node"), BUILD_PACKAGES),
    "report": (("build", "node", "reports"), BUILD_PACKAGES + JAVA_PACKAGES),
    "check": (("build", "node", "tests"), BUILD_PACKAGES),
    "executable": (("build", "node", "executable"), BUILD_PACKAGES + FREEZE_PACKAGES),
    "image": (
        ("build", "node", "executable"),
        BUILD_PACKAGES + FREEZE_PACKAGES + CHROOT_PACKAGES + DISK_PACKAGES,
    ),
    "tests": (("build", "node", "tests", "reports", "executable"), TEST_PACKAGES),
    "soak": (
        ("build", "node", "tests", "reports", "executable"),
        TEST_PACKAGES + GUEST_PACKAGES,
    ),
}


def say(line: str) -> None:
    print(f"setup: {line}", flush=True)


def main(arguments: list[str]) -> int:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    said, command = arguments[:end], arguments[end + 1 :]
    if len(said) != 1 or said[0] not in {*ENVIRONMENTS, "locks"}:
        print(f"usage: setup.py {' | '.join(ENVIRONMENTS)} | locks", file=sys.stderr)
        return 2
    if sys.version_info[:2] != PYTHON_VERSION:
        return run_with_other_python(arguments)
    try:
        with one_at_a_time():
            if said[0] == "locks":
                compile_locks()
            else:
                set_up(said[0], command)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def run_with_other_python(arguments: list[str]) -> int:
    """The same again with the interpreter the locks are for, if the machine has it."""
    wanted = "python" + ".".join(map(str, PYTHON_VERSION))
    for folder in [*os.environ.get("PATH", "").split(os.pathsep), "/usr/bin"]:
        path = Path(folder, wanted)
        if not path.exists():
            continue
        probe = subprocess.run([path, "-c", ""], check=False, capture_output=True)
        if probe.returncode == 0:  # a version manager's stand-in exists and does not run
            os.execv(path, [str(path), __file__, *arguments])
    print(f"setup: {wanted} is needed, this is {sys.version.split()[0]}", file=sys.stderr)
    return 2


@contextmanager
def one_at_a_time() -> Iterator[None]:
    with open(TOP / ".venv.lock", "w", encoding="ascii") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is at work here, waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def set_up(environment: str, command: list[str]) -> None:
    """`command` is run in the time that other errands wait for a network."""
    locks, packages = ENVIRONMENTS[environment]
    install_packages([package for package in packages if not package.present()])
    errands: list[Callable[[], None]] = [partial(fill_and_run, environment, locks, command)]
    if environment in ("tests", "soak"):
        errands += [fetch_jars, install_modules]
        if os.geteuid() == 0:  # who is not root has no chroot to test in
            errands.append(fetch_trees)
    side_by_side(errands)


def side_by_side(errands: list[Callable[[], None]]) -> None:
    """All of them at once, to the end of each: what waits for a network leaves the cores to the
    others. The first in the list that failed is what went wrong."""
    with ThreadPoolExecutor(len(errands)) as pool:
        done = [pool.submit(errand) for errand in errands]
    for future in done:
        future.result()


def fetch_jars() -> None:
    run_patiently(
        [sys.executable, str(TOP / "tools" / "hdfs.py"), "fetch"],
        "the jars of HDFS could not be fetched; see above",
    )
    run_patiently(
        [sys.executable, str(TOP / "tools" / "promtool.py"), "fetch"],
        "promtool could not be fetched; see above",
    )


def fetch_trees() -> None:
    run_patiently(
        [sys.executable, str(TOP / "tools" / "base_tree.py"), "fetch"],
        "a bare Debian could not be fetched; see above",
    )


def fill_and_run(environment: str, locks: tuple[str, ...], command: list[str]) -> None:
    fill(environment, locks)
    if command:
        run(command, f"failed: {' '.join(command)}; see above")


def fill(environment: str, locks: tuple[str, ...]) -> None:
    """Put into `.venv` what the locks say, and make it if there is none that runs."""
    installed = stamp_read() if PYTHON.exists() else {}
    stale = [lock for lock in locks if installed.get(lock) != digest(lock)]
    if not stale:
        put_command()
        return
    started = time.monotonic()
    if not runs():
        say("making .venv")
        command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
        run_patiently(command, "python3 could not make .venv; see above")
        installed, stale = {}, list(locks)
    for lock in stale:
        install_lock(lock)
        installed[lock] = digest(lock)
        stamp_write(installed)
    put_command()
    # Where Python is told to write no bytecode, each process of a node would compile all of it.
    run(
        [str(PYTHON), "-m", "compileall", "-q", str(TOP / "appliance")],
        "the program could not be compiled; see above",
    )
    say(f"{environment} environment ready after {time.monotonic() - started:.0f} s")


def put_command() -> None:
    """`.venv/bin/tigerchat` runs the program of this very checkout, from any folder."""
    text = f"""#!{PYTHON}
import sys

sys.path.insert(0, {str(TOP)!r})
from appliance.__main__ import main

sys.exit(main())
"""
    if COMMAND.exists() and COMMAND.read_text(encoding="utf-8") == text:
        return
    fresh = COMMAND.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(COMMAND)


def install_modules() -> None:
    """The other implementation of Scalable Data Sync, and the node it wants, from their lock."""
    lock = (SDS_LOCK / "package-lock.json").read_bytes()
    stamp = SDS / "installed"
    wanted = hashlib.sha256(lock).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    SDS.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(SDS_LOCK / name, SDS / name)
    say(f"installing the packages of {SDS_LOCK.relative_to(TOP)}")
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    command = ["npm", "ci", "--prefix", str(SDS), *options]
    run_patiently(command, "npm could not install the packages; see above")
    stamp.write_text(wanted)


def runs() -> bool:
    """Whether `.venv` has a python and a pip that start; half-made and moved ones do not."""
    if not PYTHON.exists():
        return False
    command = [str(PYTHON), "-m", "pip", "--version"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def digest(lock: str) -> str:
    return hashlib.sha256((LOCKS / f"{lock}.txt").read_bytes()).hexdigest()


def stamp_read() -> dict[str, str]:
    if not STAMP.exists():
        return {}
    lines = STAMP.read_text(encoding="ascii").splitlines()
    return dict(line.split(" ", 1) for line in lines if " " in line)


def stamp_write(installed: dict[str, str]) -> None:
    """Whole or not at all: a torn stamp would be believed."""
    fresh = STAMP.with_suffix(".new")
    fresh.write_text("".join(f"{lock} {value}\n" for lock, value in installed.items()))
    fresh.replace(STAMP)


def install_packages(missing: list[Package]) -> None:
    if not missing:
        return
    names = " ".join(package.name for package in missing)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SetupError(f"missing here; as root: apt-get install --yes {names}", exit_code=2)
    say(f"installing Debian packages: {names}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-q", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300"]
    quietly([*apt, "update"], environment)  # may fail half: the lists there may still do
    arguments = ["install", "--yes", "--no-install-recommends", *names.split()]
    status, output = quietly([*apt, *arguments], environment)
    importlib.invalidate_caches()
    absent = [package.name for package in missing if not package.present()]
    if status != 0 or absent:
        print("\n".join(output), file=sys.stderr)
        raise SetupError(f"apt-get could not install {' '.join(absent) or names}; see above")


def install_lock(lock: str) -> None:
    """Versions and hashes only from the lock; what has no wheel is built with `build.txt`."""
    path = LOCKS / f"{lock}.txt"
    total = sum("==" in line for line in path.read_text(encoding="utf-8").splitlines())
    say(f"installing {total} packages of {path.relative_to(TOP)}")
    command = [str(PYTHON), "-m", "pip", "install", "--require-hashes", "--no-build-isolation"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--no-input"]
    command += ["--retries", "5", "-r", str(path)]
    status, output = quietly(command, pip_environment(), progress(total))
    if status != 0:
        print("\n".join(output), file=sys.stderr)
        raise SetupError(f"pip could not install {path.relative_to(TOP)}; see above")


def pip_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in PIP_SETTINGS_DROPPED}
    return {**kept, "PIP_USER": "0"}


def progress(total: int) -> Callable[[str], None]:
    """Prints a line for every fifth package that pip turns to."""
    seen = 0

    def on_line(line: str) -> None:
        nonlocal seen
        if line.startswith(("Collecting ", "Requirement already satisfied: ")):
            seen += 1
            if seen % 5 == 0 or seen == total:
                say(f"  {seen}/{total} found")
        elif line.startswith(("Building wheels", "Installing collected")):
            say(f"  {line.split(':')[0].lower()}")

    return on_line


def quietly(
    command: list[str],
    environment: dict[str, str],
    on_line: Callable[[str], None] = lambda line: None,
) -> tuple[int, Iterable[str]]:
    """Exit code and last lines of what the command printed."""
    last: deque[str] = deque(maxlen=LOG_LINES_SHOWN)
    with subprocess.Popen(
        command,
        env=environment,
        cwd=TOP,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line.rstrip())
            on_line(line)
    return process.returncode, last


def run(command: list[str], complaint: str) -> None:
    if subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode != 0:
        raise SetupError(complaint)


def run_patiently(
    command: list[str], complaint: str, pause: Callable[[float], None] = time.sleep
) -> None:
    """What needs a network: tried again after pauses, and a line says so."""
    for pause_s in PAUSES_S:
        try:
            run(command, complaint)
            return
        except SetupError:
            words = " ".join(Path(word).name for word in command[:3])
            say(f"{words} failed: tried again in {pause_s} s")
            pause(pause_s)
    run(command, complaint)


def compile_locks() -> None:
    """Newest versions that the `.in` files allow, with hashes; made in a venv of its own."""
    folder = TOP / ".venv-locks"
    run([sys.executable, "-m", "venv", "--clear", str(folder)], "could not make a venv")
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--require-hashes"]
    run([*install, "-r", str(LOCKS / "locks.txt")], "could not install locks.txt")
    environment = {**os.environ, "CUSTOM_COMPILE_COMMAND": "make locks"}
    for name in ("locks", "build", "node", "executable", "reports", "tests"):  # constraints first
        say(f"resolving {name}.in")
        command = [python, "-m", "piptools", "compile", *COMPILE_OPTIONS]
        command += ["--output-file", f"{name}.txt", f"{name}.in"]
        done = subprocess.run(command, check=False, env=environment, cwd=LOCKS)
        if done.returncode != 0:
            raise SetupError(f"{name}.in could not be resolved; see above")
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
