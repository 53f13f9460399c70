"""Archives become rooms: everything, once, with threads, also when the import is killed."""

import email.utils
import gzip
import json
import mailbox
import signal
import subprocess
import sys
import time
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from appliance.formats.record import KIND_IMPORTED
from tests import forked
from tests.commands.conftest import TOP, Chat, Sentence, Tigerchat, environment
from tests.formats.test_archive_irc import IRSSI, WEECHAT
from tests.formats.test_archive_slack import WHOLE, zipped
from tests.patience import HUNG_S
from tests.system.local_site import LocalSite


def mails(folder: Path, count: int, tag):
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


def irssi(channel: str) -> str:
    """The log of a channel of that name."""
    return IRSSI.replace("#chess", channel)


def counts(chat: Chat):
    rows = map(json.loads, chat("room", "list", "--json").splitlines())
    return {row["name"]: row["message_count"] for row in rows}


def messages(chat: Chat, room):
    out = chat("tail", room, "--no-follow", "--json", "--since", "0")
    return [row for row in map(json.loads, out.splitlines()) if row["kind"] == KIND_IMPORTED]


def said_day(row):
    return f"{datetime.fromtimestamp(row['said_at'] / 1_000_000, UTC):%Y-%m-%d}"


def test_import_of_mail_keeps_everything_and_a_second_run_stores_nothing(
    chat: Chat, tmp_path: Path
) -> None:
    source = mails(tmp_path, 90, "one")
    printed = chat("import", "mbox", source, "--room", "mail-one")
    assert "90 entries" in printed and "0 were there before" in printed
    stored = messages(chat, "mail-one")
    assert {row["said_by"] for row in stored} == {"Ann Example"}
    assert {row["author"] for row in stored} != {"Ann Example"}
    assert {said_day(row) for row in stored} == {"2004-03-01"}
    assert not any("Ann Example ·" in row["body"] for row in stored)
    shown = chat("tail", "mail-one", "--no-follow", "--last", "3")
    assert "  2004-03-01 10:" in shown and "  Ann Example (imported by " in shown
    assert sum("Change" in row["body"] for row in stored) == 90
    assert max(len(row["body"].encode()) for row in stored) <= 2048 and len(stored) > 90
    by_id = {row["msg_id"]: row for row in stored}
    assert sum(row.get("parent_id") in by_id for row in stored) >= 87  # all but three firsts
    before = counts(chat)["mail-one"]
    again = chat("import", "mbox", source, "--room", "mail-one")
    assert f"{len(stored)} were there before, 0 stored now" in again
    assert counts(chat)["mail-one"] == before


def test_what_was_imported_is_what_another_reader_finds_in_the_mailbox(
    chat: Chat, tmp_path: Path
) -> None:
    source = mails(tmp_path, 60, "read")
    chat("import", "mbox", source, "--room", "mail-read")
    rows = {row["msg_id"]: row for row in messages(chat, "mail-read")}
    texts: dict[str, str] = {}  # by the id of the first record
    for msg_id, row in rows.items():
        first = rows.get(row.get("parent_id", ""), {})
        if all(first.get(name) == row[name] for name in ("said_by", "said_at")):
            texts[first["msg_id"]] += row["body"]  # the next part of a long text
        else:
            texts[msg_id] = row["body"]
    found = sorted(
        (rows[msg_id]["said_by"], rows[msg_id]["said_at"], text.split("\n\n", 1)[1].strip())
        for msg_id, text in texts.items()
    )
    expected = []
    for mail in mailbox.mbox(source):
        name, _ = email.utils.parseaddr(mail["From"])
        moment = email.utils.parsedate_to_datetime(mail["Date"])
        body = mail.get_payload(decode=True).decode().strip()
        expected.append((name, int(moment.timestamp()) * 1_000_000, body))
    assert len(expected) == 60 and found == sorted(expected)


def test_import_without_its_state_recognises_what_is_stored(chat: Chat, tmp_path: Path) -> None:
    source = mails(tmp_path, 150, "two")
    chat("import", "mbox", source, "--room", "mail-two")
    before = counts(chat)["mail-two"]
    (state,) = tmp_path.glob("changes.mbox.*.import")
    state.unlink()
    assert " 0 stored now" in chat("import", "mbox", source, "--room", "mail-two")
    assert counts(chat)["mail-two"] == before


def test_import_that_is_killed_goes_on_with_equal_counts(
    chat: Chat, serving: LocalSite, tmp_path: Path
) -> None:
    source = mails(tmp_path, 900, "three")
    words = ["import", "mbox", str(source), "--room", "mail-three", "--local", str(serving.folder)]
    kills = 0
    for wait in (0.05, 0.2, 0.4):
        with forked.start(words, environment=environment()) as importing:
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


def test_import_of_logs_and_of_an_export(
    chat: Chat, tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "#irssi-room.log").write_text(irssi("#irssi-room"))
    (tmp_path / "irc.libera.#weechat-room.weechatlog").write_text(WEECHAT)
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        for name, content in WHOLE.items():
            archive.writestr(name, json.dumps(content))
    assert "6 entries" in chat("import", "irssi", tmp_path / "logs")
    assert "3 entries" in chat(
        "import", "weechat", tmp_path / "irc.libera.#weechat-room.weechatlog"
    )
    export = tmp_path / "export.zip"
    unasked = sentence(tigerchat("import", "slack", export, "--local", serving.folder), 2)
    assert "holds 1 private conversation of 1 message, direct/Alice, bob: say --private" in unasked
    assert "general" not in counts(chat)
    told = chat("import", "slack", export, "--public-only")
    assert "4 entries, 4 messages in 1 room; " in told
    assert "; 1 private conversation of 1 message left out" in told
    again = chat("import", "slack", export, "--private")
    assert "5 entries, 5 messages in 2 rooms; 4 were there before, 1 stored now" in again
    assert "; 1 private conversation of 1 message among them" in again
    assert [row["body"] for row in messages(chat, "direct/Alice, bob")] == ["direct"]
    bodies = [row["body"] for row in messages(chat, "irssi-room")]
    assert bodies[1] == "hi"
    assert messages(chat, "irssi-room")[1]["said_by"] == "bob"
    assert messages(chat, "irssi-room")[1]["said_at"] == 1_078_135_267_000_000
    assert messages(chat, "weechat-room")[0]["body"].endswith("hello\twith a tab")
    general = messages(chat, "general")
    assert general[2]["parent_id"] == general[0]["msg_id"]


def test_import_of_a_broken_archive_names_file_and_line_and_stores_nothing(
    tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite, chat: Chat, tmp_path: Path
) -> None:
    log = tmp_path / "broken-room.log"
    log.write_text(IRSSI + "garbage\n")
    done = tigerchat("import", "irssi", log, "--local", serving.folder)
    said = sentence(done, 1)
    assert f"{log}, line 12: not a line of an irssi log" in said
    assert said.strip().endswith("leave such places out with --skip-broken")
    assert "broken-room" not in counts(chat)
    skipped = tigerchat("import", "irssi", log, "--skip-broken", "--local", serving.folder)
    assert skipped.returncode == 1 and "; 1 broken place skipped" in skipped.stdout
    assert len(messages(chat, "broken-room")) == 6


@pytest.mark.parametrize(
    ("kind", "name", "content"),
    [
        ("irssi", "empty-irssi.log", b"--- Log opened Mon Mar 01 09:59:00 2004\nnoise\n"),
        ("irssi", "events.log", b"--- Log opened Mon Mar 01 09:59:00 2004\n10:00 -!- a joined\n"),
        ("weechat", "empty.weechatlog", b"10:00 <ann> a log of another program\n"),
        ("mbox", "empty.mbox", b"From ann\nSubject: no date\n\nwords\n"),
        ("mbox", "nothing.mbox", b""),
        ("slack", "empty.zip", zipped(**{"channels.json": [{"id": "C1", "name": "empty-room"}]})),
    ],
)
def test_an_import_that_stores_nothing_does_not_end_well(
    tigerchat: Tigerchat, serving: LocalSite, tmp_path: Path, kind: str, name: str, content: bytes
) -> None:
    place = tmp_path / name
    place.write_bytes(content)
    done = tigerchat("import", kind, place, "--skip-broken", "--local", serving.folder)
    *_, last = done.stderr.splitlines()
    assert f"{place}, line 1: nothing to store in what was read as {kind}: 0 entries" in last
    assert done.returncode == 1


def test_logs_of_two_networks_and_of_two_people_have_rooms_of_their_own(
    chat: Chat, tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite, tmp_path: Path
) -> None:
    for network, name in (
        ("libera", "#apart.log"),
        ("oftc", "#apart.log"),
        ("oftc", "##apart.log"),
        ("oftc", "apart.log"),
    ):
        (tmp_path / "logs" / network).mkdir(parents=True, exist_ok=True)
        log = tmp_path / "logs" / network / name
        log.write_text(irssi(name.removesuffix(".log") if "#" in name else "#apart"))
    words = "import", "irssi", tmp_path / "logs"
    unasked = sentence(tigerchat(*words, "--local", serving.folder), 2)
    assert "holds 1 private conversation of 6 messages, direct/apart: say --private" in unasked
    assert "24 entries, 24 messages in 4 rooms" in chat(*words, "--private")
    names = "apart", "apart (##apart of oftc)", "apart (#apart of oftc)", "direct/apart"
    assert {name for name in counts(chat) if "apart" in name} == {*names}
    assert all(len(messages(chat, name)) == 6 for name in names)


@pytest.mark.parametrize(
    ("kind", "name", "lines"),
    [
        ("irssi", "#told-irssi.log", ["10:01 [msg(Told1)] apart", "10:02 -Told1(a@host)- apart"]),
        (
            "weechat",
            "irc.my.net.#told-weechat.weechatlog",
            ["2004-03-01 11:00:00\t--\tNotice -> Told2: apart",
             "2004-03-01 11:00:01\t--\tTold2 (a@host): apart"],
        ),
    ],
)  # fmt: skip
def test_what_one_person_was_told_never_comes_into_the_room_of_the_channel(
    chat: Chat,
    tigerchat: Tigerchat,
    sentence: Sentence,
    serving: LocalSite,
    tmp_path: Path,
    kind: str,
    name: str,
    lines: list[str],
) -> None:
    public = irssi("#told-irssi").rpartition("---")[0] if kind == "irssi" else WEECHAT
    log = tmp_path / name
    log.write_text(public + "\n".join(lines) + "\n")
    room, person = f"told-{kind}", "told1" if kind == "irssi" else "told2"
    unasked = sentence(tigerchat("import", kind, log, "--local", serving.folder), 2)
    assert f"holds 1 private conversation of 2 messages, direct/{person}: say --private" in unasked
    assert room not in counts(chat)
    told = chat("import", kind, log, "--public-only")
    assert "; 1 private conversation of 2 messages left out" in told
    said = [row["body"] for row in messages(chat, room)]
    assert len(said) == (6 if kind == "irssi" else 3) and "apart" not in said
    assert "2 stored now; 1 private conversation" in chat("import", kind, log, "--private")
    assert [row["body"] for row in messages(chat, room)] == said
    assert [row["body"] for row in messages(chat, f"direct/{person}")] == ["apart", "apart"]


def test_import_of_an_archive_that_changed_is_refused(
    tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite, chat: Chat, tmp_path: Path
) -> None:
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
