"""A real standalone cluster, a master and two workers, that reads and writes a real HDFS."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.formats.webhdfs_call import Login
from appliance.reports.file_store import file_store_of, read_all
from appliance.reports.ledger import Ledger
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.reports.command_line import LIGHT, LIGHT_JAVA, finished, report
from tests.reports.maker import Site, make
from tests.reports.rows import fingerprint
from tests.reports.site_tables import MakeTables
from tests.system.hdfs_site import USER, Hdfs, fresh_folder

SPARK_CLASS = Path(sys.executable).with_name("spark-class")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[str]:
    """URL of a master with two workers of one core each."""
    rpc, web, *worker_webs = free_ports(4)
    folder = tmp_path_factory.mktemp("cluster")
    processes = []

    def start(name: str, *words: str) -> None:
        log = (folder / f"{name}.log").open("wb")
        processes.append(
            subprocess.Popen(
                [
                    SPARK_CLASS,
                    f"org.apache.spark.deploy.{words[0]}",
                    "--host",
                    "127.0.0.1",
                    *words[1:],
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                env={
                    **os.environ,
                    **LIGHT,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_LOCAL_DIRS": str(folder),
                    "TMPDIR": str(folder),
                    "SPARK_DAEMON_JAVA_OPTS": f"{LIGHT_JAVA} -Djava.io.tmpdir={folder}",
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": "",
                },
            )
        )
        log.close()

    url = f"spark://127.0.0.1:{rpc}"
    start("master", "master.Master", "--port", str(rpc), "--webui-port", str(web))
    for number, port in enumerate(worker_webs):
        start(
            f"worker-{number}",
            "worker.Worker",
            url,
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            str(port),
            "--work-dir",
            str(folder / f"work-{number}"),
        )
    try:
        wait_alive(web, 2)
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(timeout=HUNG_S)


def wait_alive(port: int, workers: int) -> None:
    deadline = time.monotonic() + HUNG_S
    told = ""
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=2) as answer:
                told = answer.read().decode()
        except OSError:
            told = "no answer"
        if told.count('"ALIVE"') == workers + 1:
            return
        time.sleep(0.2)
    raise AssertionError(f"the cluster did not start: {told}")


@pytest.mark.soak
def test_two_workers_ingest_from_hdfs_by_either_way_and_report(
    cluster: str, hdfs: Hdfs, tables: MakeTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(seed=41, shards=2)
    root = tmp_path / "archive"
    make(root, site, 3, 300, file_records=200)
    keys = site.write_keys(tmp_path / "keys.json")
    folder = fresh_folder()
    there = file_store_of(f"{hdfs.webhdfs_url}/{folder}", login=Login(USER))
    for path in sorted(root.rglob("*.*")):
        if path.is_file():
            there.write(f"archive/{path.relative_to(root).as_posix()}", path.read_bytes())
    monkeypatch.setenv("HADOOP_USER_NAME", USER)

    def submitted(*words: str) -> str:
        """What a verb of the reports prints that the cluster has run."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "600m",
            "spark.executorEnv.HADOOP_USER_NAME": USER,
            "spark.executor.extraJavaOptions": LIGHT_JAVA,
        }
        confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        on_hdfs = ("--hdfs-http", f"127.0.0.1:{hdfs.http_port}", "--hdfs-user", USER)
        code, out, err = finished(
            report(tmp_path / "spark", *confs, *words, *on_hdfs, master=cluster)
        )
        assert code == 0, out + err
        return out

    for name, base in (("hdfs", hdfs.hdfs_url), ("webhdfs", hdfs.webhdfs_url)):
        tables_url = f"{hdfs.hdfs_url}/{folder}/tables-{name}"
        archive = f"{base}/{folder}/archive"
        submitted("ingest", archive, "--keys", str(keys), "--tables", tables_url)
    query = "select shard, count(*) as n from records group by shard order by shard"
    out = submitted("sql", query, "--format", "csv", "--tables", tables_url)
    assert out.splitlines()[-3:] == ["shard,n", "0,900", "1,900"]
    calm = tables(site, root)
    calm.ingest()
    for name in ("hdfs", "webhdfs"):
        copied = there_to_here(there, f"tables-{name}", tmp_path / f"copy-{name}")
        state = Ledger(file_store_of(str(copied)), site.cluster).load()
        assert fingerprint(copied, state) == fingerprint(calm.folder, calm.state)


def there_to_here(there, tables: str, folder: Path) -> Path:
    """The tables, copied from HDFS."""
    todo = [tables]
    while todo:
        path = todo.pop()
        for entry in there.list(path):
            if entry.is_folder:
                todo.append(f"{path}/{entry.name}")
                continue
            target = folder / path.removeprefix(tables).lstrip("/") / entry.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(read_all(there, f"{path}/{entry.name}"))
    return folder
