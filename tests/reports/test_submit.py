"""The archive `tigerchat report` carries: enough for Spark's Python and plain spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from appliance.commands.report import MAIN, packed
from tests.patience import HUNG_S
from tests.reports.command_line import LIGHT
from tests.system.local_site import run

VENV_SPARK = Path(sys.executable).with_name("spark-submit")


def test_the_archive_imports_alone_without_what_only_nodes_have(tmp_path: Path) -> None:
    told = run("report", "--bundle", str(tmp_path / "reports.zip"))
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "reports.zip").read_bytes() == packed()
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'reports.zip')!r})\n"
        "import appliance.reports.main\n"
        "for name in ('blake3', 'msgspec', 'click', 'uvloop', 'cryptography'):\n"
        "    assert name not in sys.modules, name\n"
        "import pkgutil; assert pkgutil.get_data('appliance.reports', 'page.css')\n"
        "print(appliance.reports.main.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
        timeout=HUNG_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "reports.zip"))


def test_plain_spark_submit_runs_the_archive_and_mistakes_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "reports.zip").write_bytes(packed())
    (tmp_path / "main.py").write_text(MAIN)
    line = [
        str(VENV_SPARK),
        "--master",
        "local[1]",
        "--py-files",
        str(tmp_path / "reports.zip"),
        "--conf",
        f"spark.local.dir={tmp_path}",
        "--driver-java-options",
        f"-Djava.io.tmpdir={tmp_path}",
        str(tmp_path / "main.py"),
        "sql",
        "select 1",
        "--tables",
        str(tmp_path / "none"),
    ]
    done = subprocess.run(
        line,
        cwd=tmp_path,
        text=True,
        check=False,
        timeout=HUNG_S,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={
            **os.environ,
            **LIGHT,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    assert done.returncode == 2, done.stdout
    assert "no tables here; `tigerchat report ingest` makes them" in done.stdout
