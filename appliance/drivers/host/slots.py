"""Two slots for the program, one known to be good, the other for what comes: an update is tried,
kept when a node of it was ready, and left when it never was.

    slots/
    ├── a/  b/            the program's folder, each
    ├── known -> a        what was ready before: it decides at each start which one is tried
    ├── current -> b      what runs at the next start
    ├── update.pub        the key that signs updates, 64 hexadecimal digits
    └── state.json        which is which; written before the links, which are made to follow it

What is put into the free slot is looked at before: it must run here, take what lies in the node's
folder, and write no more into volumes than the known program takes, unless that is accepted.

States: steady (current is known) → staged (an update is on trial, starts are counted) → steady with
the new one, or steady with the old one after so many starts that were never ready.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tarfile
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from appliance.base.errors import ConfigurationError, FormatError, StorageError
from appliance.base.json_text import parse_json
from appliance.base.limits import MIB
from appliance.base.signature import PUBLIC_KEY_SIZE
from appliance.drivers.files.folders import sync_folder
from appliance.drivers.host.durable_file import unusable, write_durable
from appliance.formats.update_bundle import HEAD_SIZE_MAX, Manifest, parse_head
from appliance.formats.volume_level import NOT_TOLD

STATE_FILE, KEY_FILE = "state.json", "update.pub"
KNOWN, CURRENT = "known", "current"
PROGRAM = "tigerchat"
SLOTS = ("a", "b")
TRIES = 3  # starts that an update gets to be ready once
_ANSWER_S = 120.0  # for a program to say whether it runs, and what it takes
FITS = ("update", "fits")  # by which a program tells what it takes


@dataclass(frozen=True, slots=True)
class Slots:
    """`trial` is "" in the steady state; `counter` is that of the known slot."""

    known: str
    version: str
    counter: int
    trial: str = ""
    trial_version: str = ""
    trial_counter: int = 0
    tries: int = 0  # that the trial still has
    told: str = ""  # what became of the last update


class Staged(NamedTuple):
    """`known`: the version that runs again if this one is never ready; `has_way_back`: it takes
    what this one will have written."""

    version: str
    known: str
    has_way_back: bool


class SlotFolder:
    """The slots in `path`. Every change is durable before it is told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.state = _slots_in((path / STATE_FILE).read_text())
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"{path} holds no slots: make them with `tigerchat update begin-with TREE`"
            ) from error
        except OSError as error:
            raise unusable(path / STATE_FILE, error) from error
        except (ValueError, TypeError) as error:
            raise StorageError(
                f"{path / STATE_FILE} is damaged: restore it from a copy of this machine's state"
            ) from error

    @classmethod
    def make(cls, path: Path, tree: Path, version: str, counter: int, key: str) -> "SlotFolder":
        """New slots: a copy of the program in `tree` is known to be good, the other slot empty."""
        if (path / STATE_FILE).exists():
            raise ConfigurationError(f"{path} holds slots already: stage an update there")
        if len(bytes.fromhex(key)) != PUBLIC_KEY_SIZE:
            raise ValueError("a public key has 64 hexadecimal digits")
        path.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(path / SLOTS[0], ignore_errors=True)
        shutil.copytree(tree, path / SLOTS[0], symlinks=True)
        _sync_tree(path / SLOTS[0])
        write_durable(path / KEY_FILE, key + "\n")
        folder = cls.__new__(cls)
        folder.path = path
        folder._become(Slots(SLOTS[0], version, counter))
        return folder

    # --- staging

    def stage(self, bundle: Path, node: Path | None = None, *, no_way_back: bool = False) -> Staged:
        """Put an update into the free slot, to be tried from the next start on.

        `node` is the folder that it will have to take, None: there is none yet. `no_way_back`: also
        one behind which the program of now cannot be started any more. StorageError names what is
        wrong; the slots are then as they were.
        """
        if self.state.trial:
            raise StorageError(
                f"{self.path}: an update to {self.state.trial_version} is on trial: let a start "
                "confirm or leave it first"
            )
        free = next(slot for slot in SLOTS if slot != self.state.known)
        try:
            with bundle.open("rb") as file:
                manifest = self._accept(bundle, file)
                fresh = self.path / f"{free}.new"
                shutil.rmtree(fresh, ignore_errors=True)
                with tarfile.open(fileobj=file, mode="r|") as tree:
                    tree.extractall(fresh, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise StorageError(f"{bundle}: cannot be unpacked: {error}; fetch it anew") from error
        try:
            self._check_program(bundle, fresh)
            has_way_back = self._check_takes(bundle, manifest, fresh, node, no_way_back)
        except StorageError:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        _sync_tree(fresh)
        shutil.rmtree(self.path / free, ignore_errors=True)
        fresh.rename(self.path / free)
        sync_folder(self.path)
        self._become(
            replace(
                self.state,
                trial=free,
                trial_version=manifest.version,
                trial_counter=manifest.counter,
                tries=TRIES,
                told="",
            )
        )
        return Staged(manifest.version, self.state.version, has_way_back)

    def _accept(self, bundle: Path, file: IO[bytes]) -> Manifest:
        """The manifest of a bundle that may be unpacked; `file` then stands at its payload."""
        public = bytes.fromhex((self.path / KEY_FILE).read_text().strip())
        try:
            manifest, start = parse_head(file.read(HEAD_SIZE_MAX), public)
        except FormatError as error:
            raise StorageError(f"{bundle} {error}: nothing was changed") from error
        if manifest.arch != platform.machine():
            raise StorageError(
                f"{bundle} is for {manifest.arch} and this machine is {platform.machine()}: fetch "
                "the right one"
            )
        if manifest.counter <= self.state.counter:
            raise StorageError(
                f"{bundle} is older than what runs here: release {manifest.counter} "
                f"({manifest.version}) after {self.state.counter} ({self.state.version}); a "
                "machine never goes back"
            )
        if manifest.counter_least > self.state.counter:
            raise StorageError(
                f"{bundle} follows release {manifest.counter_least} or a later one, and "
                f"{self.state.counter} runs here: it would not take what that one has written, or "
                "not speak with nodes that run it; stage one between, let it be ready on all nodes "
                "of the site, then this one"
            )
        size = os.fstat(file.fileno()).st_size - start
        if size != manifest.payload_size:
            raise StorageError(
                f"{bundle} was cut short or grew: {size} of {manifest.payload_size} bytes; fetch "
                "it anew"
            )
        file.seek(start)
        digest = hashlib.sha256()
        while piece := file.read(MIB):
            digest.update(piece)
        if digest.hexdigest() != manifest.payload_sha256:
            raise StorageError(f"{bundle} was damaged: its SHA-256 is another; fetch it anew")
        file.seek(start)
        return manifest

    def _check_program(self, bundle: Path, tree: Path) -> None:
        """The program must run here before it is ever tried."""
        done = _ask(tree, "version", "--selftest")
        if done.returncode != 0:
            raise StorageError(f"{bundle}: its program does not run here: {_last_line(done)}")

    def _check_takes(
        self, bundle: Path, manifest: Manifest, tree: Path, node: Path | None, no_way_back: bool
    ) -> bool:
        """The program must take what lies here, and the known one what it will write, or somebody
        must say that this is known; whether there is a way back."""
        old, new = _level(self.path / KNOWN), _level(tree)
        before = self.state.version
        if new < old:
            raise StorageError(
                f"{bundle}: {manifest.version} does not know all that {before}, which runs here, "
                "writes into volumes: it would halt with VOLUME_NEWER; nothing was changed, fetch "
                "a later one"
            )
        if node is not None and new != NOT_TOLD:
            done = _ask(tree, *FITS, "--node-folder", str(node))
            if done.returncode != 0:
                raise StorageError(
                    f"{bundle}: {manifest.version} would not start on {node}, nothing was changed: "
                    f"{_last_line(done)}"
                )
        if new > old and not no_way_back:
            raise StorageError(
                f"{bundle}: from its first start on {manifest.version} writes into volumes what "
                f"{before}, which runs here, does not know: there is no way back, and should it "
                f"never be ready, {before} halts with VOLUME_NEWER until a mended update is "
                "staged; nothing was changed; let one node of the site serve with it for a while, "
                "then stage it with --no-way-back"
            )
        return new <= old

    # --- starts

    def on_start(self) -> str:
        """Decide what runs now; a sentence. Called by the known program before each start."""
        state = self.state
        if not state.trial:
            self._become(state)  # the links may be from before a power cut
            return f"{state.version} runs"
        if state.tries > 0:
            self._become(replace(state, tries=state.tries - 1))
            return f"{state.trial_version} is tried, {state.tries - 1} tries are left after this"
        told = f"the update to {state.trial_version} was never ready in {TRIES} starts"
        self._become(Slots(state.known, state.version, state.counter, told=told))
        return f"{told}: {state.version} runs again"

    def confirm(self) -> str:
        """What runs was ready: an update on trial is the known one from now on."""
        state = self.state
        if not state.trial:
            return f"{state.version} runs"
        self._become(
            Slots(
                state.trial,
                state.trial_version,
                state.trial_counter,
                told=f"updated from {state.version}",
            )
        )
        return f"{state.trial_version} is known to be good"

    def _become(self, state: Slots) -> None:
        """Write the state down, then let the links follow it."""
        write_durable(self.path / STATE_FILE, json.dumps(asdict(state), indent=1))
        self.state = state
        for name, slot in ((KNOWN, state.known), (CURRENT, state.trial or state.known)):
            link, fresh = self.path / name, self.path / f"{name}.new"
            if link.is_symlink() and os.readlink(link) == slot:
                continue
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(slot)
            fresh.rename(link)
        sync_folder(self.path)


def _slots_in(text: str) -> Slots:
    """What a later version may have added is passed over: this file decides whether a node starts.
    TypeError or ValueError when it tells of no slots."""
    found: dict[str, Any] = parse_json(text)
    return Slots(**{name: found[name] for name in (f.name for f in fields(Slots)) if name in found})


def _ask(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program in `tree`. One that cannot be run or says nothing in time has failed."""
    program = [str(tree / PROGRAM), *words]
    try:
        return subprocess.run(
            program, capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(program, -1, "", str(error))


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
    return lines[-1]


def _level(tree: Path) -> int:
    """What the program in `tree` tells of its VOLUME_LEVEL; NOT_TOLD where it knows of none."""
    done = _ask(tree, *FITS)
    try:
        level = parse_json(done.stdout)["volume_level"] if done.returncode == 0 else NOT_TOLD
    except (ValueError, KeyError, TypeError):
        return NOT_TOLD
    return level if type(level) is int else NOT_TOLD


def _sync_tree(tree: Path) -> None:
    """Make all files and names below `tree` durable."""
    for path in [tree, *tree.rglob("*")]:
        if path.is_symlink():
            continue
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
