"""A machine is started from the disk image, from power-on: firmware, the first questions, the first
message, and then its power goes while people write.

Its disks are two of NVMe: one that `tigerchat flash` wrote the image to, one for messages, which is
found as /dev/nvme0n1 the first time and in another place the second. Whatever was acknowledged
must be told by the machine afterwards, and stand on the bytes of its disk, which are read here.
"""

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from appliance.cores.setup.steps import NODE_FOLDER
from appliance.drivers.chat.access import Access
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.endpoint import endpoint_of_node
from appliance.formats.site import Site, load_site
from appliance.formats.volume_label import LABEL_OFFSETS, LABEL_SIZE, decode_label
from appliance.node.new_node import CLIENT_PORT, PORTS_DEFAULT
from tests.loop_device import loop_device_of
from tests.packaging import frozen
from tests.packaging.guest import Disk, Guest, keep
from tests.packaging.test_installed import make
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.chat_load import Writer, pace
from tests.system.disk_history import history
from tests.system.ledger import Ledger, Stored, check, read
from tests.system.local_site import TOP, run, wait_until

pytestmark = pytest.mark.root
GIB = 1 << 30
DISK_SIZE = 4 * GIB  # of each; what nobody wrote takes no room here
STATE_SIZE = GIB // 2  # of the image, before it has grown
MESSAGES, SYSTEM = "messages", "system"  # serial numbers of the disks
NAME = "first"
ROOMS, WRITERS, FIRST_WRITER = 2, 4, 9
PACE_S = 0.1  # between two messages of a writer: each instruction of the machine is emulated
BEFORE, AFTER = 200, 100  # messages that are acknowledged before and after the power went
UNDER_WAY = 3  # messages that nobody has acknowledged when it goes
PATIENCE_S = 4 * HUNG_S  # of whoever writes, for a machine to boot
PAGE = 500


class Stages:
    """Says how far the test is, and how long each part took."""

    def __init__(self) -> None:
        self.begin = self.last = time.monotonic()

    def say(self, what: str) -> None:
        now = time.monotonic()
        print(f"boots: {now - self.begin:4.0f} s, +{now - self.last:.0f} s: {what}", flush=True)
        self.last = now


def make_image(folder: Path) -> Path:
    """What `make image` makes, of this tree."""
    path = folder / "tigerchat.img"
    package = make(folder / "packages", frozen.dist())["package"]
    words = [sys.executable, str(TOP / "packaging/image/build.py"), "--out", str(path)]
    done = subprocess.run(
        [*words, "--package", str(package)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return path


def make_disks(folder: Path, image: Path) -> list[Disk]:
    """One for messages, which is blank, and one that the image was written to."""
    disks = [
        Disk(MESSAGES, folder / "messages.disk"),
        Disk(SYSTEM, folder / "system.disk", is_booted=True),
    ]
    for disk in disks:
        with disk.file.open("wb") as file:
            file.truncate(DISK_SIZE)
    with loop_device_of(disks[1].file) as device:
        done = run("flash", str(image), str(device))
        assert done.returncode == 0, done.stderr
    return disks


# --- the machine, as somebody who sits before it


def answer_all(guest: Guest) -> str:
    """The first questions; the one-time secret, which is shown once."""
    guest.expect(r"Name of this machine \[tigerchat\]: ")
    guest.type(NAME)
    guest.expect(r"Interfaces: .+\n.*\[dhcp\]: ")
    guest.type("")
    listed = guest.expect(r"(?s)((?:  /dev/[^\n]+\n)+)Disk for messages \[(\S+)\]: ")
    (disk,) = listed[1].splitlines()  # what the machine runs from is not among them
    assert disk.split()[0] == listed[2] and MESSAGES in disk
    guest.type("")
    guest.expect(r"What shall this machine be \[new\]: ")
    guest.type("")
    guest.expect(r"How many machines has the site \[3\]: ")
    guest.type("1")
    summary = guest.expect(r"(?s)\n(  .*)Is that right: yes, or no to begin again: ")
    assert NAME in summary[1] and listed[2] in summary[1] and "a site of 1" in summary[1]
    guest.type("yes")
    secret = guest.expect(r"One-time secret: ([a-z0-9-]{23})\n")[1]
    guest.expect("Press Enter when you have it")
    guest.type("")
    guest.expect("setup: this machine is set up")
    return secret


def let_in(guest: Guest, folder: Path, port: int) -> Access:
    """What a client needs that comes through the forwarded port, as the machine tells it."""
    file = folder / "site.toml"
    file.write_text(guest.run(f"cat {NODE_FOLDER}/site.toml"))
    site: Site = load_site(file)
    (node,) = site.nodes
    assert node.client_port == PORTS_DEFAULT + CLIENT_PORT
    endpoint = endpoint_of_node(node, client_tls=True)
    right = "'*=read,send,moderate'"
    token = guest.run(f"tigerchat token --local {NODE_FOLDER} --user alice --right {right}").strip()
    return Access([dataclasses.replace(endpoint, host="127.0.0.1", port=port)], lambda: token)


def see_that_all_works(guest: Guest) -> None:
    """What somebody who has logged in sees of a machine that is set up."""
    assert guest.run(f"readlink -f {NODE_FOLDER}/shard-0/data").strip() == "/dev/nvme0n1"
    assert " ro," in guest.run("grep ' / ' /proc/mounts")
    assert "primary" in guest.run(f"tigerchat status --node-folder {NODE_FOLDER}")
    assert guest.run("systemctl --failed --no-legend --no-pager") == ""
    size = int(guest.run("df --output=size --block-size=1 /var").split()[1])
    assert size > 2 * STATE_SIZE, f"/var has {size} bytes: it has not grown"

    def is_shown() -> bool:
        return "primary" in guest.run("cat /dev/vcs1")

    wait_until(is_shown, HUNG_S, "the status on the first screen")


# --- those who write


async def first_message(access: Access, ledger: Ledger) -> tuple[list[UUID], int]:
    """The rooms, and the op under which the first message of all was acknowledged."""
    async with Client(access.endpoints, access.token, patience_s=PATIENCE_S) as client:
        rooms = [(await client.create_room(f"room-{n}")).room_id for n in range(ROOMS)]
        value: dict[str, Any] = {
            "room": str(rooms[0]),
            "client": str(client.client_id),
            "seq": client.next_seq(rooms[0]),
            "body": "the first",
        }
        ledger.add(FIRST_WRITER, "invoke", "send", value)
        ack = await (await client.post(rooms[0], "the first"))
    told = {"op": ack.op, "msg_id": str(ack.msg_id), "timestamp": ack.timestamp, "hash": ack.hash}
    ledger.add(FIRST_WRITER, "ok", "send", value | told)
    return rooms, ack.op


def until_acknowledged(guest: Guest, ledger: Ledger, more: int) -> None:
    goal = ledger.counts["ok"] + more
    wait_until(
        lambda: ledger.counts["ok"] >= goal,
        HUNG_S,
        lambda: f"{goal} messages acknowledged: {dict(ledger.counts)}",
        lambda: (guest.size(), ledger.counts["ok"]),
    )


def cut_and_boot(guest: Guest, ledger: Ledger, stages: Stages) -> None:
    """In the middle of what is being written."""
    until_acknowledged(guest, ledger, BEFORE)
    counts = ledger.counts
    wait_until(
        lambda: counts["invoke"] - counts["ok"] >= UNDER_WAY,
        HUNG_S,
        lambda: f"{UNDER_WAY} messages are under way: {dict(counts)}",
    )
    guest.cut_power()
    stages.say(f"the power is cut: {counts['ok']} acknowledged of {counts['invoke']} sent")
    guest.disks.reverse()
    guest.power_on()
    until_acknowledged(guest, ledger, 1)
    stages.say("the next message is acknowledged")
    until_acknowledged(guest, ledger, AFTER)


async def write_meanwhile(
    guest: Guest, access: Access, ledger: Ledger, rooms: list[UUID], seed: int, stages: Stages
) -> list[dict[str, Any]]:
    """All messages as the machine tells them in the end."""
    writers = [Writer(n, access, ledger, seed, PATIENCE_S) for n in range(WRITERS)]
    pace(writers, PACE_S)
    stop = asyncio.Event()
    writing = [asyncio.create_task(writer.write(rooms, stop)) for writer in writers]
    hurting = asyncio.create_task(asyncio.to_thread(cut_and_boot, guest, ledger, stages))
    try:
        done, _ = await asyncio.wait([hurting, *writing], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        assert hurting.done(), "a writer ended by itself"
        stop.set()
        await asyncio.gather(*writing)
        await asyncio.gather(*(writer.send_again(rooms) for writer in writers))
        return await read_all(access, rooms)
    finally:
        stop.set()
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)


async def read_all(access: Access, rooms: list[UUID]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with Client(access.endpoints, access.token, patience_s=PATIENCE_S) as client:
        for room in rooms:
            start, more = 1, True
            while more:
                page = await client.snapshot(room, from_op=start, limit=PAGE)
                found += [
                    {"room": str(room), "op": m.op, "msg_id": str(m.msg_id), "body": m.body}
                    for m in page.messages
                ]
                start, more = page.messages[-1].op + 1, page.has_more
    return found


# --- the disk, once nobody uses it


def disk_history(folder: Path, disk: Path) -> list[Stored]:
    """What the volume on the bytes of a disk says was stored."""
    with disk.open("rb") as file:
        labels = [decode_label(os.pread(file.fileno(), LABEL_SIZE, at)) for at in LABEL_OFFSETS]
    facts = next(label for label in labels if label)
    volume = folder / "volume"
    volume.mkdir()
    (volume / "volume.json").write_text(json.dumps(facts))
    with loop_device_of(disk, "--read-only") as device:
        (volume / "data").symlink_to(device)
        block = next(row for row in inspect(volume, "superblock") if row["kind"] == "superblock")
        return history(
            inspect(volume, "segment", "--records"),
            inspect(volume, "wal", "--records"),
            block["checkpoint_log_seq"],
        )


def inspect(volume: Path, *words: str) -> Iterator[dict[str, Any]]:
    """Rows of `tigerchat inspect`, which are kept beside the volume."""
    done = run("inspect", *words, "--json", "--volume", str(volume))
    assert done.returncode == 0, f"inspect {words}: {done.stderr}"
    (volume.parent / f"{words[0]}.jsonl").write_text(done.stdout)
    return map(json.loads, done.stdout.splitlines())


@pytest.mark.soak
def test_a_machine_boots_from_the_image_and_has_what_it_acknowledged_after_its_power_went(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    stages = Stages()
    image = make_image(tmp_path)
    stages.say(f"the image is made: {image.stat().st_blocks // 2048} MiB of it are written")
    disks = make_disks(tmp_path, image)
    stages.say("and written to a disk; power-on")
    (port,) = free_ports(1)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with Guest(tmp_path, disks, {port: PORTS_DEFAULT + CLIENT_PORT}) as guest:
        guest.expect("This machine is new")
        stages.say("the machine asks its first question")
        secret = answer_all(guest)
        stages.say("all is answered; the machine is set up")
        guest.log_in(secret, "of my own, and long")
        access = let_in(guest, tmp_path, port)
        rooms, op = asyncio.run(first_message(access, ledger))
        stages.say(f"the first message is acknowledged as op {op}")
        see_that_all_works(guest)
        told = asyncio.run(write_meanwhile(guest, access, ledger, rooms, seed, stages))
        stages.say(f"{ledger.counts['ok']} acknowledgements; the power is cut once more")
    ledger.close()
    events = read(ledger.path)
    names = ("room", "op", "msg_id", "body")
    wanted = {
        tuple(event.value[name] for name in names)
        for event in events
        if event.type == "ok" and event.f == "send"
    }
    missing = wanted - {tuple(row[name] for name in names) for row in told}
    assert not missing, f"acknowledged, and not told afterwards: {sorted(missing)[:10]}"
    stored = disk_history(tmp_path, tmp_path / "messages.disk")
    violations = check(events, [stored])
    if violations:
        keep(tmp_path.glob("*.jsonl"))
    assert not violations, "\n".join(f"{v.kind}: {v.text}" for v in violations[:10])
    texts = [record for record in stored if record.room in {str(room) for room in rooms}]
    assert len(texts) == ledger.counts["invoke"] + ROOMS
    stages.say(f"{len(wanted)} messages acknowledged, all of them told and on the disk")
