"""A server's gate and a client, joined back to back."""

from collections.abc import Callable
from typing import Any

from appliance.base.prng import Prng
from appliance.cores.raft.dial import (
    Again,
    Challenges,
    ClientLogin,
    Credentials,
    Entered,
    GaveUp,
)
from appliance.cores.raft.digest import ALGORITHMS, SHA256, secret_of
from appliance.cores.raft.login import (
    Doorway,
    Gate,
    Login,
    LoginResult,
    ServerLogin,
    decoy_of,
    path_of,
)
from appliance.cores.raft.nonces import Nonces
from appliance.cores.raft.users import MEMBER, User

FARM, REALM, PASSWORD = "farm", "GarlicFarm", "correct horse"
ENDPOINT, HOST = "tcp://10.0.0.3:7650", "10.0.0.3:7650"
NOW = 1_700_000_000_000


def user(name: str = "node3", role: str = MEMBER, server_id: int = 3) -> User:
    secrets = {
        algorithm: secret_of(algorithm, username=name, realm=REALM, password=PASSWORD)
        for algorithm in ALGORITHMS
    }
    return User(name, role, server_id, secrets)


class Doors:
    """`now_ms` may be moved; `conversation` keeps what the server sent."""

    def __init__(self, **gate: Any) -> None:
        self.prng = Prng(7)
        self.now_ms = NOW
        self.gate = Gate(
            farm=FARM,
            realm=REALM,
            users={"node3": user()},
            nonces=Nonces(bytes(32)),
            decoy=decoy_of(b"nobody"),
            opaque="x",
            **gate,
        )
        self.doorway = Doorway({path_of(FARM): self.gate})
        self.challenges = Challenges()
        self.replies: list[bytes] = []
        self.login: Login | None = None

    def restart_server(self) -> None:
        self.gate.nonces = Nonces(b"\x01" * 32)

    def ask(self, request: bytes, address: str = "10.0.0.9") -> LoginResult:
        verdict = ServerLogin(self.doorway, address, self.prng.bytes).on_bytes(request, self.now_ms)
        assert verdict is not None
        self.replies.append(verdict.reply)
        return verdict

    def client(self, *, password: str = PASSWORD, **options: Any) -> ClientLogin:
        names = {"username", "algorithms", "require_server_proof"}
        mine = {name: value for name, value in options.items() if name in names}
        rest = {name: value for name, value in options.items() if name not in names}
        return ClientLogin(
            challenges=self.challenges,
            credentials=Credentials(**{"username": "node3", "password": password, **mine}),
            endpoint=ENDPOINT,
            host=HOST,
            farm=FARM,
            **rest,
        )

    def connect(
        self,
        client: ClientLogin,
        *,
        behind: bytes = b"",
        change: Callable[..., object] | None = None,
    ) -> tuple[object, ...]:
        """Open connections until the client is in or gives up; (its end, connections opened)."""
        for connections in range(1, 6):
            self.login = None
            verdict = self.ask(client.begin(self.now_ms, self.prng.bytes) + behind)
            self.login = verdict.login
            reply = verdict.reply if change is None else change(verdict.reply)
            step = client.on_bytes(reply, self.now_ms)
            if not isinstance(step, Again):
                assert isinstance(step, Entered | GaveUp)
                return step, connections
        raise AssertionError("more than five connections for one login")


def only_sha256() -> dict[str, Any]:
    return {"algorithms": (SHA256,)}
