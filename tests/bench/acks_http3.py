"""One message after the other in a conversation on HTTP/3, until a time is over: what each took.

    python tests/bench/acks_http3.py FOLDER WAY SECONDS

FOLDER is that of a local site, WAY one of `WAYS`.
"""

import json
import sys
import time
from pathlib import Path
from statistics import quantiles
from typing import Any
from uuid import uuid4

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

import uvloop  # noqa: E402

from appliance.drivers.chat.access import local_access  # noqa: E402
from appliance.formats.client.connection import ErrorFrame  # noqa: E402
from appliance.formats.client.frame import Frame  # noqa: E402
from appliance.formats.client.rooms import CreateRoom, RoomAnswer  # noqa: E402
from appliance.formats.client.sending import MessageAck, SendMessage  # noqa: E402
from appliance.formats.client.sign_in import Hello, Welcome  # noqa: E402
from tests.roles.ways import EventsHttp3, Way, WebSocketHttp3  # noqa: E402

BODY = "x" * 256
WARM_UP_S = 0.5


class Events(EventsHttp3):
    """The acknowledgement comes by the stream: the answer to the POST is waited for before the next
    one alone."""

    posted: Any = None

    async def send_raw(self, data: bytes) -> None:
        if not self.secret:
            await super().send_raw(data)
            return
        if self.posted is not None:
            await self.client.until(lambda: self.posted.ended)
            assert self.posted.status == 202, self.posted
        stream_id = await self.client.request(
            "/v1/session/frames",
            method="POST",
            body=data,
            headers=self.fields,
            authority=f"127.0.0.1:{self.port}",
        )
        self.posted = self.client.answer(stream_id)


WAYS: dict[str, type[Way]] = {"events_http3": Events, "websocket_http3": WebSocketHttp3}


async def _answer(way: Way, kind: type[Frame]) -> Frame:
    while not isinstance(frame := await way.next(), kind):
        if isinstance(frame, ErrorFrame):
            raise SystemExit(f"{way.name}: {frame}")
    return frame


async def acknowledged(folder: Path, name: str, seconds: float) -> list[float]:
    """Milliseconds of each."""
    access = local_access(folder, "acks")
    kind, took = WAYS[name], []
    async with kind(access.endpoints[0].port, binary=kind.speaks(True)) as way:
        await way.send(Hello(token=access.token(), client_id=uuid4()))
        await _answer(way, Welcome)
        await way.send(CreateRoom(name="acks", request="room"))
        room = await _answer(way, RoomAnswer)
        assert isinstance(room, RoomAnswer)
        begin, number = time.perf_counter(), 0
        while (now := time.perf_counter()) < begin + WARM_UP_S + seconds:
            number += 1
            await way.send(SendMessage(room_id=room.room_id, client_seq=number, body=BODY))
            ack = await _answer(way, MessageAck)
            assert isinstance(ack, MessageAck) and ack.client_seq == number
            if now > begin + WARM_UP_S:
                took.append(1000 * (time.perf_counter() - now))
    return took


if __name__ == "__main__":
    figures = uvloop.run(acknowledged(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
    print(json.dumps({"messages": len(figures), "p50_ms": quantiles(figures, n=100)[49]}))
