"""Freezes the program: `dist/tigerchat/` (a folder) and `dist/tigerchat-onefile` (one file).

Two builds of one commit on one machine are equal, byte for byte: times come from the commit, hashes
are seeded, and the order of everything is fixed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
SPEC = Path(__file__).with_name("tigerchat.spec")
sys.path.insert(0, str(TOP))

from appliance import VERSION  # noqa: E402
from appliance.commands.report import packed  # noqa: E402
from appliance.drivers.host.resources import BUILD_FILE, REPORTS_FILE  # noqa: E402

COMPRESSION_LEVEL = 6  # of zlib: a percent larger than with 9, in a third of the time
FORMS = {"onedir": "tigerchat", "onefile": "tigerchat-onefile"}  # and what each is called


def git(*words: str) -> str:
    """What git says of the tree; empty where there is none."""
    done = subprocess.run(
        ["git", "-C", str(TOP), *words], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def write_release(folder: Path) -> None:
    """What the program is to know of itself, and what it hands to Spark."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"version": VERSION, "commit": git("describe", "--always", "--dirty")}
    (folder / BUILD_FILE).write_text(json.dumps(about, sort_keys=True) + "\n", encoding="ascii")
    (folder / REPORTS_FILE).write_bytes(packed())


def freeze(forms: Sequence[str], build: Path, dist: Path) -> None:
    """Run PyInstaller, once for all forms."""
    environment = {
        **os.environ,
        "TIGERCHAT_TOP": str(TOP),
        "TIGERCHAT_RELEASE": str(build / "release"),
        "TIGERCHAT_FORMS": " ".join(forms),
        "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct") or "0",
        "PYTHONHASHSEED": "0",
        "PYINSTALLER_ZLIB_COMPRESSION_LEVEL": str(COMPRESSION_LEVEL),
        "PYINSTALLER_CONFIG_DIR": str(build / "cache"),
    }
    words = ["--clean", "--noconfirm", "--log-level", "WARN"]
    words += ["--workpath", str(build / "work"), "--distpath", str(dist)]
    command = [sys.executable, "-m", "PyInstaller", *words, str(SPEC)]
    subprocess.run(command, env=environment, cwd=TOP, check=True)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--form", choices=list(FORMS), action="append", help="default: both")
    parser.add_argument("--dist", type=Path, default=TOP / "dist")
    parser.add_argument("--build", type=Path, default=TOP / "build" / "executable")
    asked = parser.parse_args()
    dist, build = asked.dist.absolute(), asked.build.absolute()
    write_release(build / "release")
    forms = asked.form or list(FORMS)
    if "onedir" in forms:
        shutil.rmtree(dist / FORMS["onedir"], ignore_errors=True)
    started = time.monotonic()
    print(f"executable: freezing {' and '.join(forms)}", flush=True)
    freeze(forms, build, dist)
    print(f"executable: frozen in {time.monotonic() - started:.0f} s", flush=True)
    for form in forms:
        made = dist / FORMS[form]
        print(f"executable: {made}, {size_of(made) / 1e6:.1f} MB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
