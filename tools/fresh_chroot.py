"""Shows that `make run` and a chat work on a bare Debian 12 that has only make, git and python3.

As root: makes a minimal system in a folder, clones HEAD into it, starts a site there as a newcomer
would, sends a message and reads it back, kills a replica with -9 and sends again. Everything runs
in mount and process namespaces of its own, so that mounts and processes end with it whatever
happens; then the folder goes. Where packages come from and which certificates are trusted is read
from this machine at run time.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
SUITE = "bookworm"
PACKAGES = ("make", "git", "python3")  # all that a newcomer is asked to have
ORIGIN = "/mnt/origin"  # the repository, seen from inside
CHECKOUT = "/srv/tigerchat"  # its clone, seen from inside

SERVES = re.compile(r"\bserving\b", re.IGNORECASE)  # the line of `make run` after which it serves
SERVES_WITHIN_S = 900  # the first set-up and its downloads included
COMMAND_WITHIN_S = 60
STOPS_WITHIN_S = 30
RESTARTS_WITHIN_S = 60

# What a newcomer types after `make run`; {room} and {text} are filled in.
TIGERCHAT = (".venv/bin/tigerchat",)
ROOM_CREATE = ("room", "create", "{room}")
SEND = ("send", "{room}", "{text}")
TAIL = ("tail", "{room}", "--last", "10", "--no-follow")

# Settings of this machine without which registries may be out of reach.
SETTINGS = re.compile(r"PIP_\w+|SSL_CERT_\w+|\w+_proxy|REQUESTS_CA_BUNDLE", re.IGNORECASE)
SETTINGS_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/apt/auth.conf")
SETTINGS_FOLDERS = (
    "/etc/ssl/certs",
    "/usr/local/share/ca-certificates",
    "/etc/apt/trusted.gpg.d",
    "/etc/apt/auth.conf.d",
)


class Failure(Exception):
    """The proof failed; the message says at which step."""


def main() -> int:
    arguments = arguments_read()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("needs root and debootstrap: apt-get install --yes debootstrap", file=sys.stderr)
        return 2
    if arguments.inside:
        return inside(Path(arguments.inside), Path(arguments.repo), arguments.setup_only)
    return outside(arguments)


def arguments_read() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repo", default=str(TOP), help="repository whose HEAD is cloned")
    parser.add_argument("--folder", help="where to make the system; default: a temporary folder")
    parser.add_argument("--keep", action="store_true", help="leave the folder for a look")
    parser.add_argument("--setup-only", metavar="node|tests", help="only set this up, twice")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser.parse_args()


def outside(arguments: argparse.Namespace) -> int:
    """Runs `inside` in namespaces of its own and removes the folder afterwards."""
    root = Path(tempfile.mkdtemp(prefix="tigerchat-chroot-", dir=arguments.folder))
    command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork"]
    command += ["--kill-child", "--mount-proc", sys.executable, __file__, "--inside", str(root)]
    command += ["--repo", str(Path(arguments.repo).resolve())]
    if arguments.setup_only:
        command += ["--setup-only", arguments.setup_only]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that `finally` runs
    try:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
            try:
                status = process.wait()
            finally:
                process.kill()
    finally:
        mounts = Path("/proc/self/mounts").read_text()
        assert str(root) not in mounts, "a mount escaped from the namespace"
        if not arguments.keep:
            shutil.rmtree(root)
    what = " (set-up only)" if arguments.setup_only else ""
    print(("PASS" if status == 0 else "FAIL") + what, flush=True)
    return status


def inside(root: Path, repo: Path, setup_only: str | None) -> int:
    steps: list[tuple[str, Callable[[], None]]] = [
        ("make a minimal system", lambda: make_system(root)),
        ("give it this machine's settings", lambda: give_settings(root)),
        ("mount", lambda: mount_system(root, repo)),
        ("clone", lambda: clone(root)),
    ]
    if setup_only:
        steps.append((f"set up {setup_only}", lambda: set_up(root, setup_only)))
    else:
        steps.append(("make run, chat, kill a replica, chat", lambda: prove(root)))
    for name, step in steps:
        started = time.monotonic()
        try:
            step()
        except (Failure, OSError) as error:
            print(f"fresh_chroot: {name}: {error}", file=sys.stderr, flush=True)
            return 1
        print(f"fresh_chroot: {name}: {time.monotonic() - started:.1f} s", flush=True)
    return 0


# --- the system -----------------------------------------------------------------------------------


def make_system(root: Path) -> None:
    sources = apt_sources()
    mirror = next((uri for uri, release, _ in sources if release == SUITE), None)
    if mirror is None:
        raise Failure(f"apt of this machine knows no source for {SUITE}")
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    execute([*command, SUITE, str(root), mirror], timeout_s=SERVES_WITHIN_S)
    lines = [f"deb {uri} {release} {component}\n" for uri, release, component in sources]
    (root / "etc/apt/sources.list").write_text("".join(lines))


def apt_sources() -> list[tuple[str, str, str]]:
    """(address, release, component) of each source of the suite that apt uses here."""
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    output = execute(["apt-get", "indextargets", "Created-By: Packages", "--format", form])
    rows = {tuple(line.split()) for line in output.splitlines() if len(line.split()) == 3}
    return sorted((row[0], row[1], row[2]) for row in rows if row[1].startswith(SUITE))


def give_settings(root: Path) -> None:
    """How this machine reaches registries; nothing that the program itself would use."""
    settings = execute(["apt-config", "dump"]).splitlines()
    wanted = [line for line in settings if line.startswith("Acquire::") and '""' not in line]
    (root / "etc/apt/apt.conf.d/90settings").write_text("\n".join(wanted) + "\n")
    home = [str(Path.home() / name) for name in (".config/pip/pip.conf", ".pip/pip.conf")]
    named = [value for value in settings_of_machine().values() if value.startswith("/")]
    for path in (*SETTINGS_FILES, *SETTINGS_FOLDERS, *home, *named):
        copy(Path(path), root / path.lstrip("/"))


def copy(source: Path, target: Path) -> None:
    """With links followed: what they point to does not exist inside."""
    if source.is_dir():
        for path in sorted(source.rglob("*")):
            if path.is_file():
                copy(path, target / path.relative_to(source))
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink():
            target.unlink()
        shutil.copyfile(source, target)


def environment() -> dict[str, str]:
    """What commands inside see: a plain environment and the settings of this machine."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    plain = {"PATH": path, "HOME": str(Path.home()), "LANG": "C.UTF-8"}
    return {**settings_of_machine(), **plain}


def settings_of_machine() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if SETTINGS.fullmatch(key)}


def mount_system(root: Path, repo: Path) -> None:
    origin = root / ORIGIN.lstrip("/")
    origin.mkdir(parents=True)
    execute(["mount", "-t", "proc", "proc", str(root / "proc")])
    execute(["mount", "--rbind", "/sys", str(root / "sys")])
    execute(["mount", "--rbind", "/dev", str(root / "dev")])
    execute(["mount", "--bind", str(repo), str(origin)])
    execute(["mount", "-o", "remount,ro,bind", str(origin)])


def clone(root: Path) -> None:
    trust = ["-c", "safe.directory=*"]
    execute(chroot(root, "/", "git", *trust, "clone", "--quiet", f"file://{ORIGIN}", CHECKOUT))


def set_up(root: Path, name: str) -> None:
    """The environment alone, twice: the second time must be free."""
    command = chroot(root, CHECKOUT, "python3", "tools/setup.py", name)
    print(execute(command, timeout_s=SERVES_WITHIN_S), flush=True)
    started = time.monotonic()
    execute(command, timeout_s=COMMAND_WITHIN_S)
    print(f"fresh_chroot: second set-up: {time.monotonic() - started:.1f} s", flush=True)
    modules = "import blake3, crc32c, nacl, numpy, systemd.daemon, uvloop, websockets"
    execute(chroot(root, CHECKOUT, ".venv/bin/python", "-c", modules))


# --- the proof ------------------------------------------------------------------------------------


def prove(root: Path) -> None:
    with site(root):
        tigerchat(root, ROOM_CREATE)
        say_and_read(root, "first light")
        victim = replicas()[0]
        os.kill(victim, signal.SIGKILL)
        say_and_read(root, "still here after a kill")
        wait_for(lambda: len(replicas()) >= 3 and victim not in replicas(), "the killed replica")
        say_and_read(root, "three again")


@contextmanager
def site(root: Path) -> Iterator[None]:
    """`make run`, from the moment it serves until Ctrl-C has ended it."""
    serves = threading.Event()

    def watch() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"    {line.rstrip()}", flush=True)
            if SERVES.search(line):
                serves.set()

    with subprocess.Popen(
        chroot(root, CHECKOUT, "make", "run"),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        deadline = time.monotonic() + SERVES_WITHIN_S
        while not serves.wait(0.2):
            if process.poll() is not None:
                raise Failure(f"make run ended with {process.returncode} before it served")
            if time.monotonic() > deadline:
                process.kill()
                raise Failure(f"make run did not serve within {SERVES_WITHIN_S} s")
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGINT)  # what Ctrl-C sends
            try:
                process.wait(STOPS_WITHIN_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise Failure(f"Ctrl-C did not end make run within {STOPS_WITHIN_S} s") from None


def tigerchat(root: Path, words: tuple[str, ...], text: str = "") -> str:
    filled = [word.format(room="lobby", text=text) for word in words]
    return execute(chroot(root, CHECKOUT, *TIGERCHAT, *filled))


def say_and_read(root: Path, text: str) -> None:
    print(tigerchat(root, SEND, text).rstrip(), flush=True)
    answer = tigerchat(root, TAIL)
    if answer.count(text) != 1:
        raise Failure(f"{text!r} was sent once and read {answer.count(text)} times:\n{answer}")


def replicas() -> list[int]:
    """Processes of this namespace that run a replica, oldest first."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended meanwhile
        if b"appliance" in words and b"replica" in words:
            found.append(int(folder.name))
    return sorted(found)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + RESTARTS_WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"{what} did not come back within {RESTARTS_WITHIN_S} s")
        time.sleep(0.2)


# --- commands -------------------------------------------------------------------------------------


def chroot(root: Path, folder: str, *command: str) -> list[str]:
    return ["chroot", str(root), "/bin/sh", "-c", 'cd "$0" && exec "$@"', folder, *command]


def execute(command: list[str], timeout_s: float = COMMAND_WITHIN_S) -> str:
    """What the command printed; a Failure with its last lines if it failed."""
    try:
        done = subprocess.run(
            command,
            env=environment(),
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(command)}: no end within {timeout_s:.0f} s") from None
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-20:])
        raise Failure(f"{' '.join(command)}: exit code {done.returncode}\n{last}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
