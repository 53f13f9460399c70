"""From a mailbox to a report: imported on three nodes and two shards, shipped to HDFS while a
primary and a shipper are killed, ingested, and counted against the mailbox by plain Python.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime
from email.utils import parseaddr, parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from appliance.formats.manifest import parse_keys
from appliance.formats.webhdfs_call import Login
from appliance.reports import build as building
from appliance.reports import tables as readers
from appliance.reports.archive import Archive
from appliance.reports.file_store import file_store_of
from appliance.reports.ledger import Ledger
from appliance.reports.main import ingest
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.hdfs_site import USER, Hdfs, fresh_folder
from tests.system.local_site import (
    COMMAND,
    LocalSite,
    environment,
    ports_in_a_row,
    run,
    wait_until,
)
from tools.mailbox import mails, read_all

MAILS = 600
PERIOD_S, PATIENCE_S = 2, 120.0
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def mailbox(path: Path) -> list[str]:
    """Mails whose headers are plain ASCII: what they say is then beyond doubt."""
    found = [
        mail
        for mail in mails(read_all(Path("/usr/share/doc")))
        if mail.partition("\n\n")[0].isascii()
    ][-MAILS:]
    path.write_text("".join(found), encoding="utf-8")
    return found


class Mail(NamedTuple):
    """Who said what, when."""

    author: str
    moment: datetime
    text: str


def by_room(found: list[str]) -> dict[str, list[Mail]]:
    """What is to be in each room, in order, by reading the mails."""
    rooms: dict[str, list[Mail]] = {}
    for mail in found:
        head, _, body = mail.partition("\n\n")
        headers = dict(line.split(": ", 1) for line in head.split("\n")[1:])
        room = headers["List-Id"].strip("<>").split(".")[0]
        shown, address = parseaddr(headers["From"])
        author = " ".join((shown or address).split())
        moment = parsedate_to_datetime(headers["Date"]).astimezone(UTC)
        subject = " ".join(headers["Subject"].split())
        said = re.sub(r"^>(>*From )", r"\1", body, flags=re.MULTILINE)
        words = CONTROLS.sub("", said).strip("\n")
        text = "\n\n".join(part for part in (subject, words) if part)
        rooms.setdefault(room, []).append(Mail(author, moment, text))
    return rooms


def compare(mails_of_room: list[Mail], rows: list[Row]) -> None:
    """Each mail is there whole, in one message or in several, as its author said it then."""
    left = iter(rows)
    for mail in mails_of_room:
        text = ""
        while len(text) < len(mail.text):
            row = next(left)
            assert row.author == f"{mail.author} (imported)"
            assert row.us == int(mail.moment.timestamp()) * 1_000_000
            text += row.text
        assert text == mail.text
    assert list(left) == []


def shipping(local: LocalSite) -> list[dict[str, Any]]:
    """What `tigerchat ship status` says of each shard."""
    told = run("ship", "status", "--json", "--local", str(local.folder))
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_a_mailbox_arrives_in_the_report_whole(
    spark: SparkSession, hdfs: Hdfs, free_ports: FreePorts, tmp_path: Path
) -> None:
    source = tmp_path / "changes.mbox"
    found = mailbox(source)
    assert len(found) > 500, "this machine has too few changelogs"
    folder = fresh_folder()
    local = LocalSite(
        tmp_path / "site",
        ports_in_a_row(free_ports),
        shards=2,
        ship_target=f"{hdfs.url}/{folder}",
        ship_user=USER,
        ship_period_s=PERIOD_S,
        ship_late_s=3,
    )
    with local:
        with subprocess.Popen(
            [*COMMAND, "import", "mbox", str(source), "--local", str(local.folder)],
            env=environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as importing:
            wait_until(
                lambda: any(s and s["log_seq"] > 200 for s in local.statuses()),
                PATIENCE_S,
                "something is imported",
            )
            primary = local.leader()
            local.kill_node(primary)  # with it goes its shipper
            for process in local.processes(role="shipper")[:1]:
                process.kill()
            local.start(primary)
            out, _ = importing.communicate(timeout=4 * HUNG_S)
        assert importing.returncode == 0, out
        time.sleep(PERIOD_S)  # no period is shipped before its end, not even when asked
        told = run(
            "ship",
            "now",
            "--wait",
            f"{HUNG_S:.0f}",
            "--local",
            str(local.folder),
            timeout_s=2 * HUNG_S,
        )
        assert told.returncode == 0, f"{told.stdout}{told.stderr}{shipping(local)}"
        told = run("ship", "keys", "--local", str(local.folder))
        assert told.returncode == 0, told.stderr
    (tmp_path / "keys.json").write_text(told.stdout)
    checked(spark, hdfs, folder, tmp_path, found)


def checked(spark: SparkSession, hdfs: Hdfs, folder: str, tmp_path: Path, found: list[str]) -> None:
    """Ingest from HDFS and compare with the mails."""
    trusted = parse_keys((tmp_path / "keys.json").read_bytes())
    archive = Archive(file_store_of(f"{hdfs.webhdfs_url}/{folder}", login=Login(USER)), trusted)
    ledger = Ledger(file_store_of(str(tmp_path / "tables")), trusted.cluster)
    done = ingest(spark, archive, ledger, say=lambda line: None)
    assert done.clean, [row.line() for row in (*done.quarantined, *done.waiting)]
    state = ledger.load()
    assert len(state.shards) == 2
    rows = (
        readers.messages(readers.records(spark, ledger.store, state))
        .select("room", "seq", "author", "text", "date", f.unix_micros("timestamp").alias("us"))
        .orderBy("room", "seq")
        .collect()
    )
    rooms = by_room(found)
    assert {row.room for row in rows} == rooms.keys()
    for room, expected in rooms.items():
        compare(expected, [row for row in rows if row.room == room])
    report = building.build(
        spark, ledger.store, state, tmp_path / "report", key_names={}, say=lambda line: None
    )
    told = Counter()
    for line in report.rows("messages_by_room_author_day"):
        told[line["room"], str(line["date"])] += line["messages"]
    assert told == Counter((row.room, str(row.date)) for row in rows)
    assert "every record verified" in (tmp_path / "report" / "report.html").read_text()
