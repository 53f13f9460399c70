"""Archives become rooms: everything, once, with threads, also when the import is killed."""

import gzip
import json
import signal
import subprocess
import sys
import time
import zipfile

from tests.commands.conftest import COMMAND, TOP, environment
from tests.formats.test_archive_irc import IRSSI, WEECHAT
from tests.formats.test_archive_slack import WHOLE
from tests.patience import HUNG_S


def mails(folder, count, tag):
    """An mbox made by the tool that turns changelogs into mail; rooms `changes-<letter>`."""
    for package in ("alpha", "beta", "libgamma"):
        place = folder / f"{package}-{tag}"
        place.mkdir(parents=True)
        entries = [
            f"{package}-{tag} ({version}-1) unstable; urgency=low\n\n  * Change {version}, grün.\n"
            + "".join(f"  * Detail {i} of a long entry.\n" for i in range(version % 100 * 3))
            + "\n -- Ann Example <ann@example.org>  "
            + f"Mon, 01 Mar 2004 10:{version % 60:02}:00 +0000\n\n"
            for version in reversed(range(1, count // 3 + 1))
        ]
        with gzip.open(place / "changelog.Debian.gz", "wt") as file:
            file.write("".join(entries))
    target = folder / "changes.mbox"
    done = subprocess.run(
        [sys.executable, TOP / "tools" / "mailbox.py", target, "--folder", folder],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and f"{count} mails" in done.stdout, done.stdout + done.stderr
    return target


def counts(chat):
    rows = map(json.loads, chat("room", "list", "--json").splitlines())
    return {row["name"]: row["message_count"] for row in rows}


def messages(chat, room):
    out = chat("tail", room, "--no-follow", "--json", "--since", "0")
    return [row for row in map(json.loads, out.splitlines()) if row["kind"] == 0]


def test_import_of_mail_keeps_everything_and_a_second_run_stores_nothing(chat, tmp_path):
    source = mails(tmp_path, 90, "one")
    printed = chat("import", "mbox", source, "--room", "mail-one")
    assert "90 entries" in printed and "0 were there before" in printed
    stored = messages(chat, "mail-one")
    assert all(
        row["body"].startswith("Ann Example · 2004-03-01T10:")
        for row in stored
        if "parent_id" not in row
    )
    assert sum("Change" in row["body"] for row in stored) == 90
    assert max(len(row["body"].encode()) for row in stored) <= 2048 and len(stored) > 90
    by_id = {row["msg_id"]: row for row in stored}
    assert sum(row.get("parent_id") in by_id for row in stored) >= 87  # all but three firsts
    before = counts(chat)["mail-one"]
    again = chat("import", "mbox", source, "--room", "mail-one")
    assert f"{len(stored)} were there before, 0 stored now" in again
    assert counts(chat)["mail-one"] == before


def test_import_without_its_state_recognises_what_is_stored(chat, tmp_path):
    source = mails(tmp_path, 150, "two")
    chat("import", "mbox", source, "--room", "mail-two")
    before = counts(chat)["mail-two"]
    (state,) = tmp_path.glob("changes.mbox.*.import")
    state.unlink()
    assert " 0 stored now" in chat("import", "mbox", source, "--room", "mail-two")
    assert counts(chat)["mail-two"] == before


def test_import_that_is_killed_goes_on_with_equal_counts(chat, serving, tmp_path):
    source = mails(tmp_path, 900, "three")
    words = ["import", "mbox", str(source), "--room", "mail-three", "--local", str(serving.folder)]
    kills = 0
    for wait in (0.05, 0.2, 0.4):
        with subprocess.Popen(
            [*COMMAND, *words],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as importing:
            deadline = time.monotonic() + HUNG_S
            start = counts(chat).get("mail-three", 0)
            while importing.poll() is None and counts(chat).get("mail-three", 0) <= start:
                assert time.monotonic() < deadline
            time.sleep(wait)
            kills += importing.poll() is None
            importing.send_signal(signal.SIGKILL)
    assert kills > 0
    chat("import", "mbox", source, "--room", "mail-three")
    stored = messages(chat, "mail-three")
    assert sum("Change" in row["body"] for row in stored) == 900
    assert len({row["msg_id"] for row in stored}) == len(stored)
    assert [row["client_seq"] for row in stored] == list(range(1, len(stored) + 1))


def test_import_of_logs_and_of_an_export(chat, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "#irssi-room.log").write_text(IRSSI)
    (tmp_path / "irc.libera.#weechat-room.weechatlog").write_text(WEECHAT)
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        for name, content in WHOLE.items():
            archive.writestr(name, json.dumps(content))
    assert "6 entries" in chat("import", "irssi", tmp_path / "logs")
    assert "3 entries" in chat(
        "import", "weechat", tmp_path / "irc.libera.#weechat-room.weechatlog"
    )
    assert "5 entries, 5 messages in 2 rooms" in chat("import", "slack", tmp_path / "export.zip")
    bodies = [row["body"] for row in messages(chat, "irssi-room")]
    assert bodies[1] == "bob · 2004-03-01T10:01:07Z\nhi"
    assert messages(chat, "weechat-room")[0]["body"].endswith("hello\twith a tab")
    general = messages(chat, "general")
    assert general[2]["parent_id"] == general[0]["msg_id"]


def test_import_of_a_broken_archive_names_file_and_line_and_stores_nothing(
    tigerchat, sentence, serving, chat, tmp_path
):
    log = tmp_path / "broken-room.log"
    log.write_text(IRSSI + "garbage\n")
    done = tigerchat("import", "irssi", log, "--local", serving.folder)
    assert f"{log}, line 12: not a line of an irssi log" in sentence(done, 1)
    assert "broken-room" not in counts(chat)
    assert "1 broken place skipped" in chat("import", "irssi", log, "--skip-broken")
    assert len(messages(chat, "broken-room")) == 6


def test_import_of_an_archive_that_changed_is_refused(tigerchat, sentence, serving, chat, tmp_path):
    log = tmp_path / "changed-room.log"
    log.write_text(IRSSI)
    chat("import", "irssi", log)
    log.write_text(IRSSI.replace("hello", "goodbye"))
    done = tigerchat("import", "irssi", log, "--local", serving.folder)
    assert "is not what was imported into room changed-room before" in sentence(done, 2)
    log.write_text(
        IRSSI + "11:00 <bob> more\n".replace("11:00", "--- Day changed Wed Mar 03 2004\n11:00")
    )
    assert "6 were there before, 1 stored now" in chat("import", "irssi", log)
