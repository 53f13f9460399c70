"""Write a small site of three nodes, its archive and the figures of both: see README.md here.

Run in the tree of the commit that is to be kept, with the folder for the two files and
the first of 300 free ports as arguments.
"""

import asyncio
import hashlib
import io
import json
import lzma
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from uuid import UUID

from appliance.drivers.chat.client import Client
from tests.system import local_site
from tests.system.local_site import LocalSite, run, wait_until

ROOMS = {"general": 150, "operations": 110, "quiet": 3}
LONG = "long text " * 200
SHIPPED_S = 60.0
VIEWS = ("superblock", "checkpoint", "segment", "wal")
LEFT_OUT = ("sockets", "logs")
SMALL = ("--geometry", "small", "--segments-max", "8")


def run_small(*words: str) -> subprocess.CompletedProcess[str]:
    """`tigerchat`; what is formatted is small. Not every commit's sites have an option for it."""
    return run(*words, *(SMALL if words[0] == "format" else ()))


async def write(site: LocalSite) -> None:
    """Messages with answers among them, a long one, and one that a device sends twice."""
    access = site.access()
    async with Client(access.endpoints, access.token, patience_s=60.0) as client:
        for name, count in ROOMS.items():
            room = (await client.create_room(name)).room_id
            first = UUID("01900000-0000-7000-8000-000000000001")
            await client.send(room, LONG, msg_id=first)
            for number in range(count):
                await client.send(
                    room, f"{name} {number}", parent_id=first if number % 7 == 0 else None
                )
        again = client.client_id
    async with Client(access.endpoints, access.token, client_id=again, patience_s=60.0) as client:
        client.start_at(room, 1)
        await client.send(room, LONG, msg_id=first)


async def bodies(site: LocalSite) -> dict[str, dict[str, object]]:
    """Of each room: how many messages, and the digest of their bodies, each behind a zero."""
    access, found = site.access(), {}
    async with Client(access.endpoints, access.token, patience_s=60.0) as client:
        for name in ROOMS:
            room = (await client.create_room(name)).room_id
            page = await client.snapshot(room, from_op=1, limit=1000)
            text = "".join(f"\0{message.body}" for message in page.messages)
            found[name] = {
                "room_id": str(room),
                "messages": len(page.messages),
                "last_op": page.messages[-1].op,
                "sha256": hashlib.sha256(text.encode()).hexdigest(),
            }
    return found


def log_seq(site: LocalSite) -> int:
    return max(status["log_seq"] for status in site.statuses() if status)


def shipped(site: LocalSite, last: int) -> bool:
    """Whether records up to `last` are at the target; shipping itself writes further ones."""
    return all(status and status["shipping"]["cursor"] >= last for status in site.statuses())


def main(into: Path, first_port: int) -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        folder = Path(scratch) / "site"
        local_site.run = run_small  # type: ignore[assignment]
        site = LocalSite(
            folder,
            first_port,
            ship_target="folder",
            ship_period_s=8,
            ship_late_s=9,
        )
        with site:
            asyncio.run(write(site))
            last = log_seq(site)
            wait_until(lambda: shipped(site, last), SHIPPED_S, "all records shipped")
            wait_until(site.caught_up, SHIPPED_S, "replicas level")
            rooms = asyncio.run(bodies(site))
            site.stop()
        verified = run("ship", "verify", "--local", str(folder), "--json")
        assert verified.returncode == 0, verified.stdout
        figures = {
            "rooms": rooms,
            "ship_verify": json.loads(verified.stdout),
            "inspect": {
                f"node-{n}": {v: list(site.inspect(n, v)) for v in VIEWS} for n in site.nodes
            },
        }
        pack(folder, into / "site.tar.xz")
        (into / "figures.json").write_text(json.dumps(figures, sort_keys=True) + "\n")


def pack(folder: Path, path: Path) -> None:
    """All regular files of a site; blocks of zeros cost nothing once they are compressed."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for file in sorted(folder.rglob("*")):
            kept = not set(LEFT_OUT) & set(file.relative_to(folder).parts)
            if kept and file.is_file() and not file.is_symlink():
                archive.add(file, file.relative_to(folder.parent))
    path.write_bytes(lzma.compress(raw.getvalue(), preset=9))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
