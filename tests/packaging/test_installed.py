"""The Debian package and the tar file: installed and removed on a bare Debian 12."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from appliance import VERSION
from tests.packaging import frozen
from tests.packaging.bare import NAMESPACES
from tests.patience import HUNG_S
from tests.system.local_site import TOP

pytestmark = pytest.mark.root
ENTER = 'mount -t proc proc "$1/proc" && root="$1" && shift && exec chroot "$root" "$@"'
FORMS = ("package", "tar")


def make(out: Path, dist: Path) -> dict[str, Path]:
    words = [sys.executable, str(TOP / "packaging/install/build.py")]
    words += ["--dist", str(dist), "--out", str(out)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (package,), (archive,) = out.glob("*.deb"), out.glob("*.tar.gz")
    return {"package": package, "tar": archive}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make(tmp_path_factory.mktemp("packages"), frozen.dist())


class Bare:
    """A Debian 12 with nothing but its base."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        tree = TOP / ".base" / "minbase.tar"
        subprocess.run(["tar", "--extract", "--file", tree, "--directory", root], check=True)

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [*NAMESPACES, "sh", "-c", ENTER, "enter", self.root, *words],
            capture_output=True, text=True, check=False, timeout=HUNG_S, stdin=subprocess.DEVNULL,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def files(self) -> set[str]:
        """All files but the lists of accounts and packages."""
        kept = ("proc/", "var/lib/dpkg/", "var/log/", "var/cache/", "etc/", "var/lib/tigerchat")
        return {
            name
            for path in self.root.rglob("*")
            if not (name := str(path.relative_to(self.root))).startswith(kept)
        }


@pytest.mark.parametrize("form", FORMS)
def test_it_is_installed_works_and_is_removed_without_a_trace_but_its_data(
    form: str, made: dict[str, Path], tmp_path: Path
) -> None:
    bare = Bare(tmp_path / "bare")
    before = bare.files()
    shutil.copy(made[form], bare.root / "tmp")
    place = f"/tmp/{made[form].name}"
    if form == "package":
        bare.run("dpkg", "--install", place)
        assert bare.run("getent", "passwd", "tigerchat").startswith("tigerchat:")
        assert bare.run("stat", "-c", "%U %a", "/var/lib/tigerchat") == "tigerchat 700\n"
    else:
        bare.run("tar", "-C", "/", "-xf", place)
    assert bare.run("tigerchat", "version").startswith(f"tigerchat {VERSION} (frozen")
    bare.run("tigerchat", "version", "--selftest")
    for unit in (TOP / "systemd").glob("tigerchat*"):
        assert (bare.root / "usr/lib/systemd/system" / unit.name).exists()
    bare.run("mkdir", "-p", "/var/lib/tigerchat/node")
    (bare.root / "tmp" / made[form].name).unlink()
    if form == "package":
        bare.run("dpkg", "--remove", "tigerchat")
        bare.run("dpkg", "--purge", "tigerchat")
    else:
        bare.run("/usr/lib/tigerchat/remove")
    assert bare.files() - before == set()
    assert (bare.root / "var/lib/tigerchat/node").is_dir(), "what people wrote was deleted"
    shutil.rmtree(bare.root)


def test_packages_of_a_small_program_are_equal_whenever_and_by_whomever_it_was_laid_out(
    tmp_path: Path,
) -> None:
    builds = []
    for day, mask in ((0, 0o022), (1, 0o077)):
        onedir = tmp_path / f"dist-{day}" / "tigerchat"
        for name in sorted(("tigerchat", "lib/b.so", "lib/a.so"), reverse=bool(day)):
            file = onedir / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"what {name} holds\n")
            file.chmod(0o777 & ~mask)
            os.utime(file, (time.time() + day, time.time() + day))
        builds.append(make(tmp_path / f"out-{day}", onedir.parent))
    for form in FORMS:
        assert builds[0][form].read_bytes() == builds[1][form].read_bytes(), form


@pytest.mark.soak
def test_two_builds_are_equal_byte_for_byte(made: dict[str, Path], tmp_path: Path) -> None:
    again = make(tmp_path, frozen.dist())
    for form in FORMS:
        assert again[form].read_bytes() == made[form].read_bytes(), form
