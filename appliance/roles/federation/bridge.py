"""The channel of a room for a participant of another implementation, which is a site of that room.

    that participant ◀── frames of a bare channel ──▶ bridge ◀── links between sites ──▶ nodes

It keeps a folder with its name, its key and what other sites are shown, and nothing of the room.
The core, `attached`, decides; this carries frames, in both directions, and drops what a link or a
reader has no room for.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from appliance.base.errors import CausalRefused, ConfigurationError
from appliance.base.json_text import parse_json
from appliance.base.prng import Prng
from appliance.cores.federation.attached import AttachedEffect, Attachment
from appliance.cores.federation.effects import Dropped
from appliance.cores.federation.exchange import CloseLink, SendFrame
from appliance.drivers.host import clock
from appliance.drivers.host.durable_file import lock_folder, unusable, write_durable
from appliance.drivers.host.federation_file import read_federation, write_federation
from appliance.drivers.host.identity import make_certificate, make_seed
from appliance.drivers.host.node_folder import (
    FEDERATION_FILE,
    KEYS_FOLDER,
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
)
from appliance.drivers.network.stream.stream import Stream
from appliance.formats.federation_site import FederationSite, PeerNode, PeerSite, check_name
from appliance.formats.room_name import room_id_of
from appliance.roles.federation.carrier import Bearer, StreamLink
from appliance.roles.federation.participant import (
    ANSWER,
    COMMAND,
    MESSAGE,
    answer_to,
    event_of,
    frame,
)
from appliance.roles.federation.rooms import Identity, channel_name
from appliance.roles.federation.site_links import Listening, SiteLinks

_ADDRESS_FILE = "address.json"  # where other sites reach it: host, and beside it the port


def make_attachment(
    folder: Path, name: str, sites: Iterable[PeerSite], host: str, port: int
) -> PeerSite:
    """What other sites must know of the participant that `folder` is for from now on; one that is
    there keeps its key. It knows `sites`. ConfigurationError for another one's folder.
    """
    check_name(name)
    if (folder / FEDERATION_FILE).exists():
        known = read_federation(folder)
        if known.name != name:
            raise ConfigurationError(f"{folder} is that of {known.name}: choose another folder")
        seed = known.seed
    else:
        seed = make_seed().hex()
        _make_certificate(folder, name, host)
    site = FederationSite(name, seed, (port,))
    for peer in sites:
        site = site.with_peer(peer)
    if not site.peers:
        raise ConfigurationError("say --site with the code of each site that it is attached to")
    write_durable(folder / _ADDRESS_FILE, json.dumps({"host": host}))
    write_federation(folder, site)
    certificate = (folder / TLS_CERTIFICATE_FILE).read_text()
    return PeerSite(name, site.key.public.hex(), (PeerNode(host, port, certificate),))


def _make_certificate(folder: Path, name: str, host: str) -> None:
    """What other sites are shown; its key is its owner's alone."""
    key, certificate = make_certificate(name, host)
    try:
        (folder / KEYS_FOLDER).mkdir(parents=True, exist_ok=True, mode=0o700)
        write_durable(folder / TLS_KEY_FILE, key, 0o600)
        write_durable(folder / TLS_CERTIFICATE_FILE, certificate)
    except OSError as error:
        raise unusable(folder, error) from error


class Bridge:
    """Between one participant and the sites that it is attached to, for one room.

    `send` passes a frame to everybody who speaks for the participant.
    """

    def __init__(self, folder: Path, room: str, author: str, send: Callable[[bytes], None]) -> None:
        if not (folder / _ADDRESS_FILE).exists():
            raise ConfigurationError(f"{folder} is none that `tigerchat federation attach` made")
        self.site = read_federation(folder)
        lock_folder(folder)
        self.channel = channel_name(room_id_of(room))
        self.ended = asyncio.Event()
        self.counters: Counter[str] = Counter()
        name, key = self.site.name, self.site.key
        self._attachment = Attachment(name, key, self.channel, author or name)
        self._send = send
        self._bearers: dict[int, tuple[Bearer, str]] = {}
        self._next_link = 0
        address = parse_json((folder / _ADDRESS_FILE).read_bytes())
        certificate = folder / TLS_CERTIFICATE_FILE
        listening = Listening(
            address["host"],
            self.site.ports[0],
            certificate,
            folder / TLS_KEY_FILE,
            certificate.read_text(),
        )
        self._links = SiteLinks(
            listening, Identity(name, key), self, Prng(clock.seed()), self.counters
        )

    async def start(self) -> None:
        """Listen and dial; ConfigurationError when that is impossible."""
        await self._links.start(self.site.peers)

    async def close(self) -> None:
        await self._links.close()

    # --- links ------------------------------------------------------------------------------------

    def attach(self, bearer: Bearer, site: str) -> int:
        """A link to a site that has proved who it is; its number."""
        number = self._next_link
        self._next_link += 1
        self._bearers[number] = (bearer, site)
        self._carry_out(self._attachment.on_link(number, site))
        return number

    def detach(self, number: int) -> None:
        """It is gone."""
        if self._bearers.pop(number, None) is not None:
            self._attachment.on_link_gone(number)

    def close_links(self, site: str) -> None:
        """End every link to a site."""
        for bearer, of in list(self._bearers.values()):
            if of == site:
                bearer.close("removed")

    def on_frames(self, number: int, found: Iterable[bytes]) -> None:
        """Frames of one link that came together."""
        for data in found:
            self._carry_out(self._attachment.on_frame(number, data))

    def make_codec(self, stream: Stream) -> StreamLink:
        """For streams whose peer is known: `stream.peer` is the site."""
        return StreamLink(self, stream)

    def _carry_out(self, effects: list[AttachedEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendFrame):
                bearer = self._bearers.get(effect.link)
                sent = bearer is not None and bearer[0].send(effect.frame, effect.kind)
                self.counters[f"sent_{effect.kind}" if sent else "send_dropped"] += 1
            elif isinstance(effect, CloseLink):
                if (bearer := self._bearers.get(effect.link)) is not None:
                    bearer[0].close(effect.reason)
            else:
                self.counters["heard"] += 1
                if effect.said is not None:
                    self._tell(effect.said)
                self._send(frame(MESSAGE, effect.data))

    def _tell(self, event: object) -> None:
        self._send(frame(ANSWER, json.dumps(event_of(event)).encode()))

    # --- the participant --------------------------------------------------------------------------

    def on_frame(self, data: bytes, reply: Callable[[bytes], None]) -> None:
        """One frame of the participant. Raises CausalRefused for a kind that does not exist."""
        kind, body = data[0], data[1:]
        if kind == MESSAGE:
            try:
                self._carry_out(self._attachment.on_message(body))
            except CausalRefused as error:
                self._tell(Dropped(error.reason))
        elif kind == COMMAND:
            reply(answer_to(body, self._answer))
        else:
            raise CausalRefused("frame_kind", f"frame of kind {kind}")

    def _answer(self, name: str, command: dict[str, Any]) -> dict[str, Any]:
        if name == "retrieve":
            self._carry_out(self._attachment.retrieve(map(str, command["ids"])))
            return {}
        if name == "stats":
            dropped = dict(self._attachment.dropped)
            told = {"counts": dict(self.counters), "dropped": dropped}
            return {"stats": {"channel": self.channel, "links": self._attachment.sites, **told}}
        if name == "quit":
            self.ended.set()
            return {}
        raise ValueError(f"unknown command {name!r}")
