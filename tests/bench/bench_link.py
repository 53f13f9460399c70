"""A link between two processes: TLS, signatures and all checks; bytes a second for each core.

python tests/bench/bench_link.py
"""

import asyncio
import json
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import uvloop

from appliance.base.signature import SigningKey
from tests.drivers.network.site import Recorder, TestNode, make_node, message

BATCH_SIZE = 150_000  # bytes of a prepare with 66 records of a busy shard
SMALL_SIZE = 32
WAITING_MAX = 8 << 20  # bytes the sender lets wait: as much as a full pipeline


async def send(nodes: list[TestNode], port: int, size: int, count: int) -> float:
    """CPU seconds of the sender."""
    owner = Recorder(nodes)
    link = owner.link(nodes[1].client(nodes, nodes[0]), port)
    await owner.until(lambda r: len(r.open) == 1)
    signer, transport = nodes[1].signer(), owner.open[0].transport
    header, body = message(1, b"x" * size)
    start = time.process_time()
    for number in range(count):
        while transport.get_write_buffer_size() > WAITING_MAX:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        if not link.send(signer.frame(header, body)):
            raise RuntimeError("the link dropped a frame")
        if number % 8 == 0:
            await asyncio.sleep(0)
    taken = time.process_time() - start
    await owner.until(lambda r: not r.open)  # the receiver has all and says goodbye
    await link.close()
    return taken


async def receive(nodes: list[TestNode], ask: Pipe, count: int) -> tuple[float, float]:
    """CPU and wall seconds of the receiver."""
    owner = Recorder(nodes)
    listener = await owner.listen(nodes[0].server(nodes))
    ask.send(listener.port)
    await owner.until(lambda r: len(r.messages) > 0)
    cpu, wall = time.process_time(), time.monotonic()
    received = len(owner.messages)
    await owner.until(lambda r: len(r.messages) == count)
    share = count / max(1, count - received)  # few frames may all come at once
    figures = (time.process_time() - cpu) * share, (time.monotonic() - wall) * share
    await listener.close()
    return figures


def _sender(nodes: list[tuple[int, Path]], size: int, count: int, pipe: Pipe) -> None:
    port = pipe.recv()
    pipe.send(uvloop.run(send(_nodes(nodes), port, size, count)))


def _nodes(files: list[tuple[int, Path]]) -> list[TestNode]:
    return [
        TestNode(i, SigningKey(bytes([i + 1]) * 32), path, path.with_suffix(".key"))
        for i, path in files
    ]


def measure(name: str, size: int, count: int) -> dict[str, float]:
    """One direction, `count` frames with bodies of `size` bytes."""
    with tempfile.TemporaryDirectory() as folder:
        files = [(i, make_node(Path(folder), i).certificate) for i in range(2)]
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        sender = context.Process(target=_sender, args=(files, size, count, theirs))
        sender.start()
        cpu, wall = uvloop.run(receive(_nodes(files), ours, count))
        sender_cpu = ours.recv()
        sender.join()
    return {
        f"{name}_frames_per_s": round(count / wall),
        f"{name}_mb_per_s": round(count * size / wall / 1e6, 1),
        f"{name}_mb_per_receiver_cpu_s": round(count * size / cpu / 1e6, 1),
        f"{name}_mb_per_sender_cpu_s": round(count * size / sender_cpu / 1e6, 1),
        f"{name}_receive_us": round(cpu / count * 1e6, 1),
        f"{name}_send_us": round(sender_cpu / count * 1e6, 1),
    }


def run(count: int) -> dict[str, float]:
    """Large frames and small ones."""
    return measure("batch", BATCH_SIZE, count) | measure("small", SMALL_SIZE, count)


if __name__ == "__main__":
    print(json.dumps(run(2_000), indent=1))
