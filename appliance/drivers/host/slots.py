"""Two slots for the program, one known to be good, the other for what comes: an update is tried,
kept when a node of it was ready, and left when it never was.

    slots/
    ├── a/  b/            the program's folder, each
    ├── known -> a        what was ready before: it decides at each start which one is tried
    ├── current -> b      what runs at the next start
    ├── update.pub        the key that signs updates, 64 hexadecimal digits
    └── state.json        which is which; written before the links, which are made to follow it

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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from appliance.base.errors import ConfigurationError, FormatError, StorageError
from appliance.base.json_text import parse_json
from appliance.base.limits import MIB
from appliance.base.signature import PUBLIC_KEY_SIZE
from appliance.drivers.host.durable_file import sync_folder, unusable, write_durable
from appliance.formats.update_bundle import HEAD_SIZE_MAX, Manifest, parse_head

STATE_FILE, KEY_FILE = "state.json", "update.pub"
KNOWN, CURRENT = "known", "current"
PROGRAM = "tigerchat"
SLOTS = ("a", "b")
TRIES = 3  # starts that an update gets to be ready once
_SELFTEST_S = 120.0


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


class SlotFolder:
    """The slots in `path`. Every change is durable before it is told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.state = Slots(**parse_json((path / STATE_FILE).read_text()))
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

    def stage(self, bundle: Path) -> Manifest:
        """Put an update into the free slot, to be tried from the next start on.

        StorageError names what is wrong with it; the slots are then as they were.
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
        self._check_program(bundle, fresh)
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
        return manifest

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
        try:
            done = subprocess.run(
                [str(tree / PROGRAM), "version", "--selftest"],
                capture_output=True,
                text=True,
                timeout=_SELFTEST_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StorageError(f"{bundle}: its program does not run here: {error}") from error
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
            raise StorageError(f"{bundle}: its program does not run here: {lines[-1]}")

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
