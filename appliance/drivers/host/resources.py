"""What travels with the program beside its code, from source and in the frozen executable.

    web                    pages, scripts and styles of chat and console
    firmware-config        what is expected of machines; from source beside the package
    release/build.json     version, commit and time of a frozen build
    release/sbom.json      its bill of materials, CycloneDX
    release/reports.zip    what `tigerchat report` hands to Spark

From source only these two are there: the rest is known or made on the spot. A frozen program finds
all of it below the folder that its bootloader names.
"""

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from appliance import VERSION
from appliance.base.json_text import parse_json

PACKAGE = Path(__file__).resolve().parents[2]  # of the program; frozen: below the unpacked tree
RELEASE = PACKAGE / "release"
BUILD_FILE, SBOM_FILE, REPORTS_FILE = "build.json", "sbom.json", "reports.zip"


def is_frozen() -> bool:
    """Whether this is the executable and not a source tree."""
    return bool(getattr(sys, "frozen", False))


def web() -> Path:
    """The folder of the pages."""
    return PACKAGE / "web"


def profiles() -> Path:
    """The folder of what is expected of machines."""
    return (PACKAGE if is_frozen() else PACKAGE.parent) / "firmware-config"


def release_file(name: str) -> bytes | None:
    """A file that freezing has put in; None from source."""
    path = RELEASE / name
    return path.read_bytes() if path.exists() else None


@dataclass(frozen=True, slots=True)
class Build:
    """Where this program came from. Empty `commit`: a source tree without git."""

    commit: str
    frozen: bool


def build() -> Build:
    """Of a frozen program as it was written into it, else what git says of the source tree."""
    stored = release_file(BUILD_FILE)
    if stored is not None:
        return Build(parse_json(stored)["commit"], frozen=True)
    root = PACKAGE.parent
    if not (root / ".git").exists():
        return Build("", frozen=False)
    done = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return Build(done.stdout.strip() if done.returncode == 0 else "", frozen=False)


@cache
def program() -> str:
    """How this program calls itself where two of one version must be told apart: a frozen one by
    the commit that it was made of, one that runs from source by what that is now."""
    if is_frozen():
        return f"{VERSION} (commit {build().commit})"
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix != ".pyc" and path.is_file():
            digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes())
    return f"{VERSION} (source {digest.hexdigest()[:12]})"
