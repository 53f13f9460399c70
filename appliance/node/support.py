"""What somebody who was not there needs to find a fault of a node: one bundle, without secrets.

    versions, settings, status, alarms ─┐
    machine, disks, profile ────────────┤──▶ parts ──▶ scrubbed ──▶ bounded ──▶ tar
    journal of a day, superblocks ──────┤
    headers of the log, no body ────────┘

A part that cannot be had is told in its place; the others come all the same. No body of a message
is read. What the node keeps secret is looked for in each part, whatever form it may have there, and
taken out, as is what looks like a token, a code or a password.
"""

import base64
import dataclasses
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import systemd.journal

from appliance import VERSION
from appliance.base.errors import ApplianceError
from appliance.base.limits import MIB
from appliance.base.printable import json_line
from appliance.drivers.host import machine_facts, resources
from appliance.drivers.host.federation_file import read_federation
from appliance.drivers.host.node_folder import (
    FARM_KEY_FILE,
    FEDERATION_FILE,
    KEYS_FOLDER,
    TOKEN_KEY_FILE,
)
from appliance.drivers.nvme import health
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats.settings import SETTINGS_FILE, load_settings
from appliance.formats.site import SITE_FILE, Site, load_site
from appliance.node.preflight import choose, compare
from appliance.roles.operator.volume_rows import superblock_rows, wal_rows

SIZE_MAX = 50 * MIB  # of a bundle
LOG_SIZE_MAX = 16 * MIB  # of the newest lines of the journal
LOG_S = 86_400.0
ENTRIES_MAX = 1_000_000  # of the journal that are looked at: others fill it too
LEFT_OUT = b"(left out)"
IDENTIFIER = "tigerchat"  # what the identifiers of a node's lines begin with
_SECRET_SIZE_MIN = 12  # bytes: shorter words stand in any text
# what people are shown once, or show: a token, the console's secret, a join code, a password in an
# address, what a request bears
_SECRET_LIKE = re.compile(
    rb"eyJ[\w-]{8,}\.[\w-]+\.[\w-]*"
    rb"|(?<=one-time secret: )\S+"
    rb"|\bTC1-[A-Za-z2-7-]{16,}"
    rb"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"
    rb"|(?i:(?<=bearer )|(?<=tigerchat-session: )|(?<=token=))[\w.~+/=-]{8,}"
)

Parts = Iterator[tuple[str, bytes]]
Status = Callable[[], dict[str, Any]]


def bundle(folder: Path, status: Status) -> Parts:
    """(name, text) of each part of the node in `folder`, clean, and all of them within `SIZE_MAX`.
    `status` tells how its processes are; ConfigurationError when there is no node."""
    site = load_site(folder / SITE_FILE)
    clean = Cleaner(secrets_of(folder))
    left, missing = SIZE_MAX, []
    for name, make in _parts(folder, site, status):
        try:
            text = clean(make())
        except (ApplianceError, OSError, ValueError) as error:
            name, text = f"{name}.missing", clean(f"{type(error).__name__}: {error}\n".encode())
        if len(text) > left:
            missing.append(name)
            continue
        left -= len(text)
        yield name, text
    yield "README.txt", _about(missing)


def _parts(folder: Path, site: Site, status: Status) -> Iterator[tuple[str, Callable[[], bytes]]]:
    yield "version.json", _version
    yield "site.toml", (folder / SITE_FILE).read_bytes
    yield "settings.json", lambda: _json(dataclasses.asdict(load_settings(folder / SETTINGS_FILE)))
    yield "status.json", lambda: _json(status())
    yield "machine.json", lambda: _json(_machine(folder))
    yield "preflight.json", lambda: _json(_differences())
    yield "disks.json", lambda: _json(_disks())
    yield "log.txt", lambda: log_text(journal_entries())
    for shard in site.shards:
        path = folder / f"shard-{shard.number}"
        if not path.exists():
            continue

        yield f"superblock-{shard.number}.jsonl", partial(_rows, path, superblock_rows)
        yield f"log-headers-{shard.number}.jsonl", partial(_rows, path, _headers)


def _rows(path: Path, rows: Callable[[VolumeReader], Iterable[Any]]) -> bytes:
    """Of the volume in `path`, a line each."""
    return b"".join(json_line(row).encode() + b"\n" for row in rows(VolumeReader(path)))


def _headers(reader: VolumeReader) -> Iterable[Any]:
    return wal_rows(reader, records=False, bodies=False)


def _about(missing: list[str]) -> bytes:
    moment = time.strftime("%FT%TZ", time.gmtime())
    lines = [
        f"A support bundle of TigerChat {VERSION}, made at {moment}.",
        "",
        "version, settings, site    what runs and how it is set up",
        "status, machine, disks     how it is now",
        "preflight                  how the machine differs from its model",
        "log                        a day of the journal; none of what goes to a terminal",
        "superblock, log-headers    of each volume, without any message",
        "",
        "No key, token or message is in it. NAME.missing says why a part could not be had.",
    ]
    if missing:
        lines.append(f"Left out, as a bundle has {SIZE_MAX // MIB} MiB at most: {missing}")
    return "\n".join([*lines, ""]).encode()


def _version() -> bytes:
    build = resources.build()
    return _json(
        {
            "version": VERSION,
            "frozen": build.frozen,
            "commit": build.commit,
            "python": platform.python_version(),
            "kernel": platform.release(),
        }
    )


def _machine(folder: Path) -> dict[str, Any]:
    disk = psutil.disk_usage(str(folder))
    return {
        "facts": dict(sorted(machine_facts.read().items())),
        "load": os.getloadavg(),
        "memory": psutil.virtual_memory()._asdict(),
        "up_s": round(time.time() - psutil.boot_time()),
        "disk": disk._asdict(),
        "mounts": [part._asdict() for part in psutil.disk_partitions()],
    }


def _differences() -> list[dict[str, Any]]:
    profile = choose(resources.profiles(), machine_facts.read())
    facts = machine_facts.read(profile.tables["kernel"]["sysctl"])
    return [dataclasses.asdict(line) for line in compare(profile, facts)]


def _disks() -> dict[str, Any]:
    found = {name: health.health_of(name, ask=health.ask) for name in health.controllers()}
    return {
        name: it if isinstance(it, str) else dataclasses.asdict(it) for name, it in found.items()
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, default=str) + "\n").encode()


# --- the log --------------------------------------------------------------------------------------


def journal_entries() -> Iterator[dict[str, Any]]:
    """Entries of this machine's journal, the newest first."""
    with systemd.journal.Reader() as reader:
        reader.seek_tail()
        while entry := reader.get_previous():
            yield entry


def log_text(entries: Iterable[dict[str, Any]], now_s: float | None = None) -> bytes:
    """The lines of this node's processes within a day, oldest first, of `entries` from the newest
    on."""
    oldest_s = (time.time() if now_s is None else now_s) - LOG_S
    lines: list[bytes] = []
    size = 0
    for number, entry in enumerate(entries):
        moment = entry["__REALTIME_TIMESTAMP"]
        if moment.timestamp() < oldest_s or number >= ENTRIES_MAX:
            break
        name = str(entry.get("SYSLOG_IDENTIFIER", ""))
        if not name.startswith(IDENTIFIER):
            continue
        line = f"{moment.isoformat()} {name}: {entry.get('MESSAGE', '')}\n".encode()
        size += len(line)
        if size > LOG_SIZE_MAX:
            break
        lines.append(line)
    return b"".join(reversed(lines))


# --- secrets --------------------------------------------------------------------------------------


class Cleaner:
    """Takes out of a text what is secret."""

    def __init__(self, secrets: set[bytes]) -> None:
        self._secrets = sorted(secrets, key=len, reverse=True)

    def __call__(self, text: bytes) -> bytes:
        for secret in self._secrets:
            text = text.replace(secret, LEFT_OUT)
        return _SECRET_LIKE.sub(LEFT_OUT, text)


def secrets_of(folder: Path) -> set[bytes]:
    """What the files of a node, and of a local site around it, keep: as it stands there, and as
    hexadecimal digits and base64 of it. OSError: one cannot be read, so nobody knows what to look
    for."""
    files = [path for path in (folder / KEYS_FOLDER).iterdir() if path.suffix != ".crt"]
    files += [folder.parent / name for name in (TOKEN_KEY_FILE, FARM_KEY_FILE)]
    found: set[bytes] = set()
    for file in files:
        if file.is_file():
            found |= _forms(file.read_bytes())
    if (folder / FEDERATION_FILE).exists():
        found |= _forms(read_federation(folder).seed.encode())
    return found


def _forms(raw: bytes) -> set[bytes]:
    words = {raw.strip(), *re.findall(rb"[\w+/=.$-]+", raw)}
    forms = set(words)
    for word in (raw, *words):
        forms |= {word.hex().encode(), base64.b64encode(word), base64.urlsafe_b64encode(word)}
    forms |= {form.rstrip(b"=") for form in forms}
    return {form for form in forms if len(form) >= _SECRET_SIZE_MIN}
