"""Fetches the libraries of the pages from npm into `appliance/web/vendor`, by pinned digests.

    tools/vendor.py           fetch, check, write the files and their manifest
    tools/vendor.py --check   compare the files with the manifest; needs no network

`npm pack` brings the published archive and runs none of its code. Which registry it asks is the
machine's own npm setting; what is accepted is decided here, by SHA-256 of the archive. There is no
build step: a file is taken as published, except that a bare module name is replaced by the file
beside it (a browser resolves no bare names without an inline import map, which the pages' content
security policy forbids) and the link to a source map is dropped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

VENDOR = Path(__file__).resolve().parent.parent / "appliance" / "web" / "vendor"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Taken:
    """One file of an archive: its path there, its name here, and the replacements made in it."""

    path: str
    name: str
    replacements: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Library:
    name: str
    version: str
    sha256: str  # of the archive as npm serves it
    licence: str
    why: str
    files: tuple[Taken, ...]


LIBRARIES = (
    Library(
        "preact",
        "11.2.0",
        "3c4456766bd32b6b534d52bf4e9c2a29b33e7eedf6e96ed479300ba1a7888ebf",
        "MIT",
        "renders the pages: 5 KiB compressed, no build step",
        (
            Taken("dist/preact.mjs", "preact.js", (("\n//# sourceMappingURL=preact.mjs.map", ""),)),
            Taken(
                "hooks/dist/hooks.mjs",
                "hooks.js",
                (
                    ('from"preact"', 'from"./preact.js"'),
                    ("\n//# sourceMappingURL=hooks.mjs.map", ""),
                ),
            ),
            Taken("LICENSE", "preact.LICENSE"),
        ),
    ),
    Library(
        "htm",
        "3.1.1",
        "2425b9bee11409177bcabc7f32e319926fc6690c1701c0b257c88bdff2d5ba90",
        "Apache-2.0",
        "markup in template strings, so that nothing is compiled",
        (Taken("dist/htm.mjs", "htm.js"), Taken("LICENSE", "htm.LICENSE")),
    ),
    Library(
        "uplot",
        "1.6.32",
        "4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d",
        "MIT",
        "draws the console's charts: a canvas, no dependencies",
        (
            Taken("dist/uPlot.iife.min.js", "uplot.js"),
            Taken("dist/uPlot.min.css", "uplot.css"),
            Taken("LICENSE", "uplot.LICENSE"),
        ),
    ),
)


class VendorError(Exception):
    """What is not as pinned, in one sentence."""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fetch(library: Library, folder: Path) -> Path:
    """The published archive of `library`, in `folder`; raises unless it is the pinned one."""
    command = ["npm", "pack", "--silent", "--ignore-scripts", f"{library.name}@{library.version}"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise VendorError(
            f"npm pack {library.name}@{library.version}: {done.stderr.strip()[-400:]}"
        )
    archive = folder / f"{library.name}-{library.version}.tgz"
    found = digest(archive.read_bytes())
    if found != library.sha256:
        raise VendorError(f"{archive.name} has sha256 {found}, pinned is {library.sha256}")
    return archive


def extract(library: Library, archive: Path) -> list[tuple[Taken, bytes]]:
    """The wanted files of `archive`, replacements made; each must match exactly once."""
    taken = []
    with tarfile.open(archive, "r:gz") as tar:
        for file in library.files:
            member = tar.extractfile(f"package/{file.path}")
            if member is None:
                raise VendorError(f"{archive.name} has no {file.path}")
            text = member.read().decode()
            for old, new in file.replacements:
                if text.count(old) != 1:
                    raise VendorError(
                        f"{file.path}: {old!r} occurs {text.count(old)} times, expected once"
                    )
                text = text.replace(old, new)
            taken.append((file, text.encode()))
    return taken


def write_all() -> None:
    """Fetch every library and write its files; the manifest last."""
    VENDOR.mkdir(parents=True, exist_ok=True)
    entries = []
    with tempfile.TemporaryDirectory(prefix="tigerchat-vendor-") as scratch:
        for library in LIBRARIES:
            for file, data in extract(library, fetch(library, Path(scratch))):
                (VENDOR / file.name).write_bytes(data)
                entries.append(
                    {
                        "file": file.name,
                        "size": len(data),
                        "sha256": digest(data),
                        "package": library.name,
                        "version": library.version,
                        "path": file.path,
                        "licence": library.licence,
                        "archive_sha256": library.sha256,
                        "replaced": [list(pair) for pair in file.replacements],
                        "why": library.why,
                    }
                )
    (VENDOR / MANIFEST).write_text(json.dumps(entries, indent=1) + "\n")


def check() -> list[str]:
    """What differs between the folder, its manifest and the pins above; empty when all is well."""
    entries = {entry["file"]: entry for entry in json.loads((VENDOR / MANIFEST).read_text())}
    pinned = {file.name: library for library in LIBRARIES for file in library.files}
    faults = [
        f"{name}: not pinned in tools/vendor.py" for name in sorted(entries.keys() - pinned.keys())
    ]
    faults += [f"{name}: not in the manifest" for name in sorted(pinned.keys() - entries.keys())]
    present = {path.name for path in VENDOR.iterdir()} - {MANIFEST}
    faults += [f"{name}: nobody vendored this" for name in sorted(present - entries.keys())]
    for name, entry in sorted(entries.items()):
        if name not in present:
            faults.append(f"{name}: missing")
        elif digest((VENDOR / name).read_bytes()) != entry["sha256"]:
            faults.append(f"{name}: changed since it was fetched")
        elif name in pinned and entry["archive_sha256"] != pinned[name].sha256:
            faults.append(f"{name}: fetched from another archive than the pinned one")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Libraries of the pages: fetch, or compare with the manifest."
    )
    parser.add_argument("--check", action="store_true", help="only compare; needs no network")
    arguments = parser.parse_args()
    try:
        if not arguments.check:
            write_all()
    except (VendorError, OSError) as error:
        print(f"vendor: {error}", file=sys.stderr)
        return 1
    faults = check()
    for fault in faults:
        print(f"vendor: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
