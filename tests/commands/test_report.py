"""`tigerchat report`: finds Spark or says what to install; hands it an archive that suffices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.base.errors import ConfigurationError
from appliance.commands.report import packed, spark_submit
from tests.patience import HUNG_S
from tests.system.local_site import run


def test_without_spark_it_says_what_to_install(monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python3")
    with pytest.raises(ConfigurationError, match="apt-get install openjdk-17"):
        spark_submit(None)


def test_spark_is_found_where_it_is_named_then_by_its_home_then_in_the_path(tmp_path, monkeypatch):
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


def test_a_wrong_verb_or_no_verb_is_a_mistake():
    for words in (("report",), ("report", "dance")):
        told = run(*words)
        assert told.returncode == 2
        assert "ingest, build, sql, stream" in told.stderr


def test_the_archive_is_the_same_each_time(tmp_path):
    told = run("report", "--bundle", str(tmp_path / "reports.zip"))
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "reports.zip").read_bytes() == packed()


def test_the_command_itself_imports_no_spark():
    program = (
        "import sys, appliance.commands.report\n"
        "assert not {'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=HUNG_S, cwd=Path(__file__).parents[2]
    )
