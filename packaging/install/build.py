"""The program for machines that are not flashed: a Debian package and a plain tar file.

    dist/tigerchat_VERSION_ARCH.deb            apt install ./tigerchat_VERSION_ARCH.deb
    dist/tigerchat-VERSION-MACHINE.tar.gz      tar -C / -xf it; /usr/lib/tigerchat/remove undoes it

Both hold the same files: the executable (onedir) in /usr/lib/tigerchat, the command in /usr/bin,
units, who runs them, the operator's book, the licence. Neither starts anything: a node is
formatted first.
Two builds of one commit are equal, byte for byte.
"""

import argparse
import gzip
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

from appliance import VERSION  # noqa: E402

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PROGRAM = "usr/lib/tigerchat"
# How the package and the tar file are packed.
PACKED: tuple[Sequence[str], int] = (("-Zxz", "-z1"), 6)
UNPACKED: tuple[Sequence[str], int] = (("-Znone",), 0)
GLIBC_MIN = "2.35"  # of what was frozen on Debian 12

CONTROL = """\
Package: tigerchat
Version: {version}
Architecture: {architecture}
Maintainer: TigerChat <tigerchat@localhost>
Installed-Size: {size_kib}
Depends: libc6 (>= {glibc}), passwd
Recommends: systemd
Section: net
Priority: optional
Description: replicated chat and event log
 A message is acknowledged when it is on disk at a quorum of the site's nodes.
 One executable with everything in it: no Python is needed.
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tigerchat
Comment: Libraries of others in /usr/lib/tigerchat keep their own licences;
 tigerchat version --sbom lists them.

Files: *
Copyright: The authors of TigerChat
License: Apache-2.0
"""
USER = """\
if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers tigerchat.conf
    systemd-tmpfiles --create tigerchat.conf || true
elif ! getent passwd tigerchat >/dev/null; then
    useradd --system --user-group --home-dir /var/lib/tigerchat --shell /usr/sbin/nologin tigerchat
fi
if [ ! -d /var/lib/tigerchat ]; then
    install -d -m 0700 -o tigerchat -g tigerchat /var/lib/tigerchat
fi
"""
RELOAD = """\
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
"""
STOP = """\
if [ -d /run/systemd/system ]; then
    systemctl stop tigerchat.service tigerchat.target tigerchat-tty.service \\
        'tigerchat-tty@*.service' tigerchat-disks.timer 2>/dev/null || true
fi
"""
# What was enabled of units that are gone would be said to lack them for ever.
DISABLE = """\
if [ -d /etc/systemd/system ]; then
    find /etc/systemd/system -type l -lname '*/systemd/system/tigerchat*' -delete
    find /etc/systemd/system -type d -name 'tigerchat*.wants' -empty -delete
fi
"""
# A process of the program reads of it for as long as it lives: of another one's it would read what
# does not belong together.
REFUSE = """\
for program in /proc/[0-9]*/exe; do
    case "$(readlink "$program" || true)" in
    /usr/lib/tigerchat/*)
        [ -z "$TIGERCHAT_REPLACE" ] || continue
        process=${program#/proc/}
        echo "tigerchat: a node runs by this program (process ${process%/exe}): nothing was" \\
            "changed. Stop it first (systemctl stop tigerchat), or say TIGERCHAT_REPLACE=1" \\
            "before this command, and have the node restarted at once by tigerchat upgrade" >&2
        exit 1
        ;;
    esac
done
"""
KEPT = "# /var/lib/tigerchat stays: messages and keys are the operator's to delete.\n"
SCRIPTS = {
    "preinst": 'if [ "$1" = install ] || [ "$1" = upgrade ]; then\n' + REFUSE + "fi\n",
    "postinst": USER + RELOAD,
    "prerm": 'if [ "$1" = remove ]; then\n' + STOP + DISABLE + "fi\n",
    "postrm": KEPT + RELOAD,
}
REMOVE = (
    "#!/bin/sh\n# Takes away what the tar file has brought.\nset -e\n"
    + KEPT
    + STOP
    + DISABLE
    + "cd /\nxargs -d '\\n' rm -f <usr/lib/tigerchat/files\n"
    + "rm -f usr/lib/tigerchat/files usr/lib/tigerchat/remove\n"
    + "find usr/lib/tigerchat usr/share/doc/tigerchat -depth -type d -empty -delete\n"
    + "rmdir --ignore-fail-on-non-empty usr/lib/sysusers.d usr/lib/tmpfiles.d\n"
    + RELOAD
)
SHEBANG = "#!/bin/sh\nset -e\n"


def lay_out(onedir: Path, root: Path) -> None:
    """The files as they lie on a machine."""
    shutil.copytree(onedir, root / PROGRAM, symlinks=True)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/tigerchat").symlink_to("../lib/tigerchat/tigerchat")
    copies = {
        "usr/lib/systemd/system": sorted((TOP / "systemd").glob("tigerchat*")),
        "usr/lib/sysusers.d": [TOP / "systemd/sysusers.d/tigerchat.conf"],
        "usr/lib/tmpfiles.d": [TOP / "systemd/tmpfiles.d/tigerchat.conf"],
        "usr/share/doc/tigerchat": sorted((TOP / "docs").glob("*.md")),
    }
    for folder, files in copies.items():
        (root / folder).mkdir(parents=True)
        for file in files:
            shutil.copyfile(file, root / folder / file.name)
    (root / "usr/share/doc/tigerchat/copyright").write_text(copyright_text())
    for path in root.rglob("*"):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)


def copyright_text() -> str:
    """Debian's machine-readable form, with the whole licence: the tar file is for any machine."""
    lines = (TOP / "LICENSE").read_text().splitlines()
    return COPYRIGHT + "".join(f" {line}\n" if line.strip() else " .\n" for line in lines)


def make_package(root: Path, path: Path, architecture: str, packed: Sequence[str]) -> None:
    """The Debian package of the files below `root`, by dpkg-deb, which is told how to pack them."""
    size = sum(file.lstat().st_size for file in root.rglob("*") if file.is_file())
    about = root / "DEBIAN"
    about.mkdir()
    (about / "control").write_text(
        CONTROL.format(
            version=VERSION, architecture=architecture, size_kib=size // 1024, glibc=GLIBC_MIN
        )
    )
    for name, script in SCRIPTS.items():
        (about / name).write_text(SHEBANG + script)
        (about / name).chmod(0o755)
    words = ["dpkg-deb", "--root-owner-group", *packed, "--build", str(root), str(path)]
    epoch = {"SOURCE_DATE_EPOCH": str(commit_time())}
    subprocess.run(words, check=True, env={**os.environ, **epoch}, stdout=subprocess.DEVNULL)
    shutil.rmtree(about)


def make_tar(root: Path, path: Path, level: int) -> None:
    """The tar file of the same, with a list of what it brings and the script that removes it."""
    files = [file for file in root.rglob("*") if file.is_symlink() or file.is_file()]
    names = sorted(str(file.relative_to(root)) for file in files)
    (root / PROGRAM / "files").write_text("".join(f"{name}\n" for name in names))
    (root / PROGRAM / "remove").write_text(REMOVE)
    (root / PROGRAM / "remove").chmod(0o755)
    when = commit_time()

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = when
        return entry

    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=level, fileobj=raw, mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name in [*names, f"{PROGRAM}/files", f"{PROGRAM}/remove"]:
            archive.add(root / name, name, recursive=False, filter=plain)


def commit_time() -> int:
    """Seconds since the epoch; 0 without git."""
    words = ["git", "-C", str(TOP), "log", "-1", "--format=%ct"]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    return int(told.stdout.strip() or 0) if told.returncode == 0 else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dist", type=Path, default=TOP / "dist", help="with tigerchat/ in it")
    parser.add_argument("--out", type=Path, help="default: the same folder")
    parser.add_argument("--unpacked", action="store_true", help="For trials: at once, and large.")
    asked = parser.parse_args()
    packed, level = UNPACKED if asked.unpacked else PACKED
    out = asked.out or asked.dist
    out.mkdir(parents=True, exist_ok=True)
    machine = platform.machine()
    architecture = ARCHITECTURES[machine]
    with tempfile.TemporaryDirectory(dir=out) as folder:
        root = Path(folder, "root")
        root.mkdir(mode=0o755)
        lay_out(asked.dist / "tigerchat", root)
        package = out / f"tigerchat_{VERSION}_{architecture}.deb"
        make_package(root, package, architecture, packed)
        archive = out / f"tigerchat-{VERSION}-{machine}.tar.gz"
        make_tar(root, archive, level)
    for made in (package, archive):
        print(f"packages: {made}, {made.stat().st_size / 1e6:.1f} MB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
