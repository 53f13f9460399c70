"""`tigerchat report` as an analyst types it, with Spark's rubbish in a folder of the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.patience import HUNG_S

TOP = Path(__file__).resolve().parents[2]
MASTER = "local[2]"
# Of every Java that lives for one test: what C2 compiles and G1 collects never pays for itself.
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Where Spark's scripts look: for the Java that makes up a command, and for the driver's.
LIGHT = {"SPARK_LAUNCHER_OPTS": LIGHT_JAVA, "SPARK_SUBMIT_OPTS": LIGHT_JAVA}


def settings(folder: Path) -> dict[str, str]:
    """Of Spark: nothing outside the folder."""
    return {
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}",
    }


def report(folder: Path, *words: str, master: str = MASTER) -> subprocess.Popen[str]:
    """Start it, in a session of its own, so that it can be killed with all its processes."""
    folder.mkdir(parents=True, exist_ok=True)
    line = [sys.executable, "-m", "appliance", "report", "--master", master]
    for name, value in settings(folder).items():
        line += ["--conf", f"{name}={value}"]
    return subprocess.Popen(
        [*line, *words],
        cwd=folder,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(folder),
    )


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        **LIGHT,
        "PYTHONPATH": str(TOP),
        "TMPDIR": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def finished(process: subprocess.Popen[str], timeout_s: float = HUNG_S) -> tuple[int, str, str]:
    """(exit code, stdout, stderr); what takes too long is killed with all its processes."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"not done in {timeout_s:.0f} s\n{out}\n{err}") from None
    return process.returncode, out, err
