"""`tigerchat report`: finds Spark or says what to install; hands it an archive that suffices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.base.errors import ConfigurationError
from appliance.commands.report import archive_of, packed, spark_submit
from appliance.formats.settings import SETTINGS_FILE, encode_settings
from tests.patience import HUNG_S
from tests.system.local_site import run


def test_without_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python3")
    with pytest.raises(ConfigurationError, match="apt-get install openjdk-17"):
        spark_submit(None)


def test_spark_is_found_where_it_is_named_then_by_its_home_then_in_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {}
    for name in ("named", "home", "path"):
        places[name] = tmp_path / name / "bin" / "spark-submit"
        places[name].parent.mkdir(parents=True)
        places[name].write_text("#!/bin/sh\n")
        places[name].chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    assert spark_submit(tmp_path / "named") == places["named"]
    assert spark_submit(places["named"]) == places["named"]
    assert spark_submit(None) == places["home"]
    monkeypatch.delenv("SPARK_HOME")
    assert spark_submit(None) == places["path"]
    with pytest.raises(ConfigurationError, match="no bin/spark-submit"):
        spark_submit(tmp_path)


def test_a_wrong_verb_or_no_verb_is_a_mistake() -> None:
    for words in (("report",), ("report", "dance")):
        told = run(*words)
        assert told.returncode == 2
        assert "site, ingest, build, update, sql, stream" in told.stderr


def test_the_archive_is_the_same_each_time(tmp_path: Path) -> None:
    told = run("report", "--bundle", str(tmp_path / "reports.zip"))
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "reports.zip").read_bytes() == packed()


def test_the_command_itself_imports_no_spark() -> None:
    program = (
        "import sys, appliance.commands.report\n"
        "assert not {'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=HUNG_S, cwd=Path(__file__).parents[2]
    )


def spark_of(folder: Path, *, java: bool = True) -> Path:
    """A Spark that says that it ran, and a Python beside it that has only the standard library."""
    folder.mkdir(parents=True)
    for name, line in (
        ("spark-submit", "echo Spark ran"),
        ("python3", f'exec {sys.executable} -S "$@"'),
        *((("java", "true"),) if java else ()),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    return folder / "spark-submit"


def test_a_spark_without_a_package_is_told_which_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = spark_of(tmp_path / "bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv(
        "PYSPARK_PYTHON", raising=False
    )  # a session of Spark in this process sets it
    told = run("report", "--spark", str(submit), "sql", "select 1", "--tables", "t")
    assert told.returncode == 2
    assert "Spark ran" not in told.stdout
    assert told.stderr.count("\n") == 1
    assert "has no numpy, pyarrow, pandas, nacl, crc32c: install it there" in told.stderr
    assert "pip install numpy pyarrow 'pandas<3' PyNaCl crc32c" in told.stderr


def test_a_machine_without_java_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = spark_of(tmp_path / "bin", java=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    told = run("report", "--spark", str(submit), "sql", "select 1", "--tables", "t")
    assert (told.returncode, told.stdout) == (2, "")
    assert "Spark needs Java 17" in told.stderr
    assert "apt-get install openjdk-17-jre-headless" in told.stderr


def shipping_site(folder: Path, *targets: str) -> Path:
    """A local site, never started, whose nodes ship to these targets."""
    two = ["--accept-two-replicas"] if len(targets) == 2 else []
    done = run("format", "--local", str(folder), "--nodes", str(len(targets)), "--brief", *two)
    assert done.returncode == 0, done.stderr
    for index, target in enumerate(targets):
        settings = encode_settings(index, ship_target=target)
        (folder / f"node-{index}" / SETTINGS_FILE).write_text(settings)
    return folder


def test_the_archive_is_where_the_nodes_ship_to(tmp_path: Path) -> None:
    for target, archive in (
        ("http://nn:9870/chat", "webhdfs://nn:9870/chat"),
        ("https://nn:9871/chat", "swebhdfs://nn:9871/chat"),
        ("/srv/chat", "/srv/chat"),
    ):
        site = shipping_site(tmp_path / target.partition(":")[0].strip("/"), target)
        assert archive_of(site, tmp_path / "gathered") == archive
    site = shipping_site(tmp_path / "off", "off")
    with pytest.raises(ConfigurationError, match='ship_target is "off"'):
        archive_of(site, tmp_path / "gathered")


def test_what_each_node_shipped_into_a_folder_of_its_own_is_gathered(tmp_path: Path) -> None:
    site = shipping_site(tmp_path / "site", "folder", "folder")
    place = "shipped/cluster=1/shard=00000"
    for node, name in ((0, "first.tig"), (1, "second.tig"), (1, "_incoming/half.tig")):
        path = site / f"node-{node}" / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    for _ in range(2):  # the second time it finds all as it is
        gathered = Path(archive_of(site, tmp_path / "gathered"))
        found = sorted(path.name for path in gathered.rglob("*.tig"))
        assert found == ["first.tig", "second.tig"]
