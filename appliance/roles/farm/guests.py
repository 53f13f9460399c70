"""Members that come by code: invited on one machine, known to all by the log.

    invite ──▶ invitations/DIGEST ──door──▶ admitted by the log: id, endpoint, pin, sealed H(A1)
    code ────▶ join ◀── settings, id, password ──┘                └──▶ every member lets it log in

H(A1) is as good as a password for a login, so it travels through the log only under the key of the
farm, which lies beside the users on every member and never in the log.
"""

import asyncio
import base64
import os
import secrets
import time
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from appliance.base.errors import FarmPostFailed
from appliance.base.json_text import parse_json
from appliance.cores.directory.directory import Directory, canonical
from appliance.cores.raft.dial import Challenges, Credentials
from appliance.cores.raft.digest import ALGORITHMS
from appliance.cores.raft.effects import MEMBER as STANDS
from appliance.cores.raft.invitation import USED, Invited, digest_of
from appliance.cores.raft.users import MEMBER, User
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.network.farm_stream import Route
from appliance.formats.raft_legacy.configuration import Server, encode_server, endpoint_address
from appliance.formats.raft_legacy.frame import ADD_SERVER, CLUSTER_SERVER, Entry, Request
from appliance.roles.farm.client import FarmClient
from appliance.roles.farm.exchange import USERS_FILE, exported
from appliance.roles.farm.link import Keys
from appliance.roles.farm.member import FarmMember
from appliance.roles.farm.settings import TLS, FarmSettings, make_user, read_secret

INVITATIONS_FOLDER = "invitations"
SEAL_SIZE = 32
_USED_ENDING = ".used"
_NONCE_SIZE = 12
_ADMIT_S = 20.0  # for the log to take a guest in
_ASK_S = 5.0  # for a leader to begin AddServer; then it is asked again


def invite(folder: Path, secret: str, minutes: int) -> None:
    """From now on the member in `folder` lets in whoever has the secret, once."""
    invitations = folder / INVITATIONS_FOLDER
    invitations.mkdir(mode=0o700, exist_ok=True)
    expires_ms = int((time.time() + 60 * minutes) * 1000)
    write_durable(invitations / digest_of(secret), f"{expires_ms}\n", mode=0o600)


def read_invitations(folder: Path) -> dict[str, int]:
    """digest -> when it expires in ms, or USED."""
    found = {}
    for path in sorted((folder / INVITATIONS_FOLDER).glob("*")):
        if path.suffix == _USED_ENDING:
            found[path.stem] = USED
        elif path.name not in found:
            try:
                found[path.name] = int(path.read_text())
            except (OSError, ValueError):
                continue  # it is being written, or renamed
    return found


def seal(key: bytes, user: User) -> str:
    nonce = os.urandom(_NONCE_SIZE)
    sealed = AESGCM(key).encrypt(nonce, canonical(user.secrets), user.name.encode())
    return base64.b64encode(nonce + sealed).decode()


def unseal(key: bytes, row: dict[str, Any]) -> User | None:
    """The user of a guest; None: it was not sealed by a member of this farm."""
    try:
        raw = base64.b64decode(row["sealed"], validate=True)
        name = f"node{row['id']}"
        found = parse_json(AESGCM(key).decrypt(raw[:_NONCE_SIZE], raw[_NONCE_SIZE:], name.encode()))
    except (ValueError, InvalidTag):
        return None
    valid = isinstance(found, dict) and set(found) <= set(ALGORITHMS)
    return User(name, MEMBER, row["id"], found) if valid else None


class Guests:
    """Beside one member that runs alone: lets guests in, and is one itself until it is listed."""

    def __init__(self, member: FarmMember) -> None:
        assert len(member.settings.seal) == SEAL_SIZE
        self.member = member
        self._known: set[int] = set()
        self._admitting = asyncio.Lock()
        member.on_applied, member.on_guest = self.on_applied, self.welcome

    @property
    def settings(self) -> FarmSettings:
        return self.member.settings

    @property
    def directory(self) -> Directory:
        return self.member.directory

    def on_applied(self) -> None:
        """Who was admitted may log in, and is dialled by the key that it named."""
        for server_id, row in self.directory.admitted.items():
            if server_id in self._known:
                continue
            self._known.add(server_id)
            user = unseal(self.settings.seal, row)
            if user is None:
                self.member.counts["guest_not_sealed"] += 1
            else:
                self.member.learn(user, bytes.fromhex(row["pin"]))

    def _client(self) -> FarmClient:
        settings = self.settings

        def route_of(server_id: int, endpoint: str) -> Route:
            host, port = endpoint_address(endpoint)
            pin = settings.pins.get(server_id, b"") if settings.carrier == TLS else None
            return Route(host, port, pin)

        keys = Keys(
            settings.farm,
            Credentials(settings.user, settings.password, settings.algorithms),
            Challenges(),
        )
        return FarmClient(settings.known, keys, route_of)

    async def welcome(self, invited: Invited) -> bytes:
        """What a guest needs to run; empty: its invitation is used, or the log does not answer."""
        path = self.settings.folder / INVITATIONS_FOLDER / invited.digest
        try:
            path.rename(path.with_name(invited.digest + _USED_ENDING))
        except OSError:
            self.member.counts["invitation_used"] += 1
            return b""
        async with self._admitting:
            users = {user.id for user in self.settings.users}
            taken = {*self.directory.servers, *self.directory.admitted, *users}
            server_id = max(taken) + 1
            password = secrets.token_urlsafe(32)
            row = make_user(
                name=f"node{server_id}",
                role=MEMBER,
                server_id=server_id,
                realm=self.settings.realm,
                password=password,
            )
            user = User(row["name"], MEMBER, server_id, row["secrets"])
            if not await self._admit(server_id, invited, user):
                return b""
        users = parse_json(read_secret(self.settings.folder / USERS_FILE))
        known = {u["name"] for u in users}
        users += [
            {"name": u.name, "class": u.role, "id": u.id, "secrets": u.secrets}
            for u in self.settings.users
            if u.name not in known
        ]
        content = exported(self.settings, self.settings.pins.get(self.settings.id, b""), users)
        guest = {"id": server_id, "endpoint": invited.endpoint, "pin": invited.pin.hex()}
        members = self.member.node.status().servers
        pins = self.settings.pins
        content["members"] = [
            {"id": s.id, "endpoint": s.endpoint, "pin": pins.get(s.id, b"").hex()} for s in members
        ]
        content["members"].append(guest)
        return canonical({"id": server_id, "password": password, "farm": content})

    async def _admit(self, server_id: int, invited: Invited, user: User) -> bool:
        row = {
            "id": server_id,
            "endpoint": invited.endpoint,
            "pin": invited.pin.hex(),
            "sealed": seal(self.settings.seal, user),
        }
        word = {
            "cluster": self.settings.farm,
            "date": int(time.time() * 1000),
            "id": self.settings.id,
            "config": {"admit": row},
        }
        client = self._client()
        try:
            await client.post([canonical(word)], _ADMIT_S)
            deadline = time.monotonic() + _ADMIT_S
            while server_id not in self.directory.admitted:
                if time.monotonic() > deadline:
                    return False
                await asyncio.sleep(0.05)
        except FarmPostFailed:
            return False
        finally:
            await client.close()
        return self.directory.admitted[server_id] == row

    async def ask_to_be_added(self) -> None:
        """Until this member is one."""
        client = self._client()
        server = Server(self.settings.id, self.settings.endpoint)
        request = Request(ADD_SERVER, entries=(Entry(0, CLUSTER_SERVER, encode_server(server)),))
        try:
            while self.member.node.status().standing != STANDS:
                try:
                    await client.ask(request, _ASK_S)
                except FarmPostFailed:
                    continue
                await asyncio.sleep(_ASK_S)
        finally:
            await client.close()
