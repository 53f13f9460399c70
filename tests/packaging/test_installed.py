"""The Debian package and the tar file: installed and removed on a bare Debian 12."""

import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from appliance import VERSION
from tests.packaging import frozen
from tests.packaging.bare import Bare
from tests.system.local_site import TOP

pytestmark = pytest.mark.root
NODE_FILE = "/var/lib/tigerchat/node/site.toml"
FORMS = ("package", "tar")


def make(out: Path, dist: Path, *more: str) -> dict[str, Path]:
    words = [sys.executable, str(TOP / "packaging/install/build.py")]
    words += ["--dist", str(dist), "--out", str(out), *more]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (package,), (archive,) = out.glob("*.deb"), out.glob("*.tar.gz")
    return {"package": package, "tar": archive}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Not packed, which takes twice as long as all else here; the small ones below are, and that of
    `test_image.py` is installed."""
    return make(tmp_path_factory.mktemp("packages"), frozen.dist(), "--unpacked")


@pytest.mark.parametrize("form", FORMS)
def test_it_is_installed_works_and_is_removed_without_a_trace_but_its_data(
    form: str, made: dict[str, Path], tmp_path: Path
) -> None:
    bare = Bare(tmp_path / "bare", {made[form].parent: "/mnt"})
    place = f"/mnt/{made[form].name}"
    if form == "package":
        bare.run("dpkg", "--force-unsafe-io", "--install", place)
        assert bare.run("getent", "passwd", "tigerchat").startswith("tigerchat:")
        assert bare.run("stat", "-c", "%U %a", "/var/lib/tigerchat") == "tigerchat 700\n"
        bare.run("tigerchat", "version", "--selftest")
        what_root_makes_is_the_node_s(bare)
        it_is_not_replaced_while_it_runs(bare, place)
    else:
        bare.run("tar", "-C", "/", "-xf", place)
        bare.run("install", "-D", "/dev/null", NODE_FILE)
    assert bare.run("tigerchat", "version").startswith(f"tigerchat {VERSION} (frozen")
    units = bare.outside("/usr/lib/systemd/system")
    for unit in (TOP / "systemd").glob("tigerchat*"):
        assert (units / unit.name).exists()
    enabled = bare.outside("/etc/systemd/system/multi-user.target.wants/tigerchat.service")
    enabled.parent.mkdir(parents=True)
    enabled.symlink_to("/lib/systemd/system/tigerchat.service")
    if form == "package":
        bare.run("dpkg", "--remove", "tigerchat")
        bare.run("dpkg", "--purge", "tigerchat")
    else:
        bare.run("/usr/lib/tigerchat/remove")
    assert bare.traces() == set()
    assert not enabled.is_symlink(), "what is gone is enabled"
    assert bare.outside(NODE_FILE).is_file(), "what people wrote is gone"


def what_root_makes_is_the_node_s(bare: Bare) -> None:
    """The units run as that user: what is another's they could neither read nor change."""
    words = ("--node-folder", "/var/lib/tigerchat/node", "--name", "a", "--host", "127.0.0.1")
    bare.run("tigerchat", "found", *words, "--nodes", "1", "--geometry", "small")
    foreign = ("find", "/var/lib/tigerchat", "!", "-user", "tigerchat")
    assert bare.run(*foreign) == ""
    assert bare.run(*foreign[:2], "-name", "formatted") != ""


OVER_A_RUNNING_ONE = """\
tigerchat found --node-folder /srv/n --name a --host 127.0.0.1 --geometry small >/dev/null 2>&1 &
until readlink /proc/$!/exe | grep -q /usr/lib/tigerchat; do sleep 0.02; done
dpkg --force-unsafe-io --install {package} 2>&1 && exit 9
TIGERCHAT_REPLACE=1 /var/lib/dpkg/info/tigerchat.preinst upgrade 0.1.0 || exit 8
kill -9 $!
wait $! || true
rm -r /srv/n
/var/lib/dpkg/info/tigerchat.preinst upgrade 0.1.0 || exit 7
"""


def it_is_not_replaced_while_it_runs(bare: Bare, package: str) -> None:
    """It is refused by name, and nothing is changed; who says that it is meant may."""
    program = ("stat", "-c", "%i %Z", "/usr/lib/tigerchat/tigerchat")
    before = bare.run(*program)
    said = bare.run("sh", "-c", OVER_A_RUNNING_ONE.format(package=package))
    assert "a node runs by this program (process " in said
    assert bare.run(*program) == before
    state = ("dpkg-query", "--show", "--showformat", "${Status}", "tigerchat")
    assert bare.run(*state) == "install ok installed"


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
    subprocess.run(["dpkg-deb", "--extract", builds[0]["package"], tmp_path / "root"], check=True)
    with tarfile.open(builds[0]["tar"]) as archive:
        archive.extract("usr/share/doc/tigerchat/copyright", tmp_path / "tar", filter="data")
    for root in (tmp_path / "root", tmp_path / "tar"):
        text = (root / "usr/share/doc/tigerchat/copyright").read_text()
        licence = [word for word in text.split("License: Apache-2.0")[1].split() if word != "."]
        assert licence == (TOP / "LICENSE").read_text().split()


@pytest.mark.soak
def test_two_builds_are_equal_byte_for_byte(tmp_path: Path) -> None:
    builds = [make(tmp_path / name, frozen.dist()) for name in ("first", "again")]
    for form in FORMS:
        assert builds[0][form].read_bytes() == builds[1][form].read_bytes(), form
