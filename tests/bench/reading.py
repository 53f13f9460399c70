"""How fast archives of other chats and of mail are read, in each form, and in how much memory.

python -m tests.bench.reading KIND PATH     read it; entries, CPU seconds, peak memory as JSON
"""

import html
import json
import resource
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime, formataddr
from pathlib import Path
from typing import Any

from appliance.commands.import_ import Source
from appliance.drivers.host.process import child_environment
from appliance.formats.archive.entry import refuse

RATE_MIN = 5_000  # entries in a second of a core, whoever else wants it
COUNTS, COUNTS_QUICK = (10_000, 20_000, 40_000), (100, 400)
GROWS_MAX = 50  # bytes of peak memory for each entry more: an entry alone has 250
TURNS, TURNS_QUICK = 3, 1  # the one in the middle is told
PEOPLE = 50
BEGIN = datetime(2004, 3, 1, tzinfo=UTC)
A_DAY = 1_000  # messages
MAILS = 240  # of different forms

Row = dict[str, Any]


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Row]:
    """A row for the pace of each form, and one for its memory."""
    rows: list[Row] = []
    counts, turns = (COUNTS_QUICK, TURNS_QUICK) if quick else (COUNTS, TURNS)
    for kind, (name, write) in FORMS.items():
        paces, peaks = [], []
        for count in counts:
            place = folder / f"{count}" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            write(place, count)
            found = sorted((read_apart(kind, place) for _ in range(turns)), key=_seconds)
            assert all(each["entries"] == count for each in found), found
            paces.append(round(count / _seconds(found[turns // 2])))
            peaks.append(found[turns // 2]["peak_bytes"])
            place.unlink()
        grows = (peaks[-1] - peaks[0]) / (counts[-1] - counts[0])
        say(
            f"reading {kind}: {paces[0]} entries/s of {counts[0]}, {paces[-1]} of {counts[-1]}; "
            f"{', '.join(f'{peak / 1e6:.1f}' for peak in peaks)} MB at most, {grows:.0f} bytes for "
            "each entry more"
        )
        rows += [
            {
                "kind": "reading archives",
                "what": f"reading {counts[0]} messages of {kind}",
                "value": paces[0],
                "unit": "entries/s",
                "bar": f"at least {RATE_MIN}",
                "held": paces[0] >= RATE_MIN,
                "per_s": dict(zip(map(str, counts), paces, strict=True)),
            },
            {
                "kind": "reading archives",
                "what": f"peak memory for each further message of {kind}",
                "value": round(grows),
                "unit": "bytes",
                "bar": f"at most {GROWS_MAX}",
                "held": grows <= GROWS_MAX,
                "peak_bytes": dict(zip(map(str, counts), peaks, strict=True)),
            },
        ]
    return rows


def _seconds(found: Row) -> float:
    return float(found["seconds"])


def read_apart(kind: str, place: Path) -> Row:
    """What a process of its own says that reads it and nothing else."""
    words = [sys.executable, "-m", "tests.bench.reading", kind, str(place)]
    top = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        words, capture_output=True, cwd=top, env=child_environment(), text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"bench: reading {kind} ended with {done.returncode}: {done.stderr}")
    return dict(json.loads(done.stdout))


def read(kind: str, place: Path) -> Row:
    """Entries, seconds of a core and peak memory."""
    begun = time.process_time()
    entries = sum(1 for _ in Source(kind, place).entries(refuse))
    return {
        "entries": entries,
        "seconds": time.process_time() - begun,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


# --- archives -------------------------------------------------------------------------------------


def text_of(number: int) -> str:
    return f"{number:08} {'what people say, grün ' * 8}"


def write_irssi(place: Path, count: int) -> None:
    with place.open("w") as file:
        for number in range(count):
            moment = BEGIN + timedelta(minutes=number)
            if moment.hour == moment.minute == 0:
                file.write(f"--- Day changed {moment:%a %b %d %Y}\n")
            file.write(f"{moment:%H:%M} <@person{number % PEOPLE}> {text_of(number)}\n")


def write_weechat(place: Path, count: int) -> None:
    with place.open("w") as file:
        for number in range(count):
            moment = BEGIN + timedelta(minutes=number)
            file.write(f"{moment:%Y-%m-%d %H:%M:%S}\t@person{number % PEOPLE}\t{text_of(number)}\n")


def write_mbox(place: Path, count: int) -> None:
    """Mails of a library, of some forms each again and again: making one is dear."""
    forms = [mail_of(form) for form in range(MAILS)]
    with place.open("wb") as file:
        for number in range(count):
            moment = BEGIN + timedelta(minutes=number)
            mail = forms[number % MAILS].replace(b"NUMBER", b"%d" % number)
            mail = mail.replace(b"MOMENT", format_datetime(moment).encode())
            file.write(f"From somebody {moment:%a %b %d %H:%M:%S %Y}\n".encode() + mail + b"\n")


def mail_of(form: int) -> bytes:
    mail = EmailMessage()
    person = f"person{form % PEOPLE}"
    mail["X-From"] = "AUTHOR"  # the library of this version would take the comma for a border
    mail["To"] = "all@example.org"
    mail["X-Date"] = "MOMENT"
    mail["Message-ID"] = "<NUMBER@example.org>"
    mail["In-Reply-To"] = f"<{form}@example.org>"
    mail["Subject"] = f"About {form // 5}, grün"
    mail.set_content(text_of(form), cte=("8bit", "quoted-printable", "base64")[form % 3])
    if form % 8 == 0:
        mail.add_alternative(f"<p>{html.escape(text_of(form))}</p>", subtype="html")
        mail.set_boundary("part-of-NUMBER")  # no two mails have the same
    author = formataddr((f"{person}, Jörg", f"{person}@example.org")).encode()
    raw = mail.as_bytes().replace(b"X-From: AUTHOR", b"From: " + author)
    return raw.replace(b"X-Date", b"Date")


def write_slack(place: Path, count: int) -> None:
    people = [{"id": f"U{number}", "name": f"person{number}"} for number in range(PEOPLE)]
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("users.json", json.dumps(people))
        archive.writestr("channels.json", json.dumps([{"id": "C1", "name": "general"}]))
        for first in range(0, count, A_DAY):
            day = BEGIN + timedelta(days=first // A_DAY)
            said = [item_of(day, number) for number in range(first, min(count, first + A_DAY))]
            archive.writestr(f"general/{day:%Y-%m-%d}.json", json.dumps(said))


def item_of(day: datetime, number: int) -> Row:
    """A message as Slack has it: its text, and the same once more as blocks."""
    text = f"{text_of(number)} <@U{number % 7}>"
    elements = [{"type": "text", "text": text_of(number) + " "}]
    elements.append({"type": "user", "user_id": f"U{number % 7}"})
    section = {"type": "rich_text_section", "elements": elements}
    return {
        "type": "message",
        "user": f"U{number % PEOPLE}",
        "ts": f"{day.timestamp() + number % A_DAY * 60:.6f}",
        "text": text,
        "blocks": [{"type": "rich_text", "elements": [section]}],
    }


FORMS: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "irssi": ("#old.log", write_irssi),
    "weechat": ("irc.net.#old.weechatlog", write_weechat),
    "mbox": ("old.mbox", write_mbox),
    "slack": ("old.zip", write_slack),
}


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1], Path(sys.argv[2]))))
