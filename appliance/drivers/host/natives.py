"""Native parts of the program, each loaded and run once: does this machine run what was frozen?"""

import asyncio
import importlib
import os
import tempfile
from collections.abc import Callable


def _uvloop() -> str:
    import uvloop

    async def answer() -> int:
        return 42

    assert uvloop.run(answer()) == 42
    return type(uvloop.new_event_loop()).__module__


def _nacl() -> str:
    import nacl
    from nacl.signing import SigningKey

    key = SigningKey(bytes(range(32)))
    key.verify_key.verify(key.sign(b"tigerchat"))
    return str(nacl.__version__)


def _crc32c() -> str:
    import crc32c

    assert crc32c.crc32c(b"123456789") == 0xE3069283  # RFC 3720, appendix B.4 names the polynomial
    return "hardware" if crc32c.hardware_based else "software"


def _blake3() -> str:
    import blake3

    assert blake3.blake3(b"").hexdigest().startswith("af1349b9f5f9a1a6")
    return str(blake3.__version__)


def _aioquic() -> str:
    import aioquic
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.connection import QuicConnection

    client = QuicConnection(configuration=QuicConfiguration(is_client=True))
    client.connect(("127.0.0.1", 1), now=0.0)
    assert len(client.datagrams_to_send(now=0.0)[0][0]) >= 1200  # RFC 9000, section 14.1
    return str(aioquic.__version__)


def _pylsqpack() -> str:
    import pylsqpack

    encoder = pylsqpack.Encoder()
    _, header = encoder.encode(0, [(b":status", b"200")])
    _, fields = pylsqpack.Decoder(0, 0).feed_header(0, header)
    assert fields == [(b":status", b"200")]
    return "QPACK"


def _cryptography() -> str:
    import cryptography
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(bytes(16))
    assert cipher.decrypt(bytes(12), cipher.encrypt(bytes(12), b"x", None), None) == b"x"
    return str(cryptography.__version__)


def _argon2() -> str:
    from argon2 import PasswordHasher

    hasher = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    assert hasher.verify(hasher.hash("secret"), "secret")
    return "argon2id"


def _numpy() -> str:
    import numpy as np

    assert int(np.arange(1000, dtype="<u8").sum()) == 499500
    return str(np.__version__)


def _msgspec() -> str:
    import msgspec

    assert msgspec.json.decode(msgspec.json.encode({"a": 1})) == {"a": 1}
    return str(msgspec.__version__)


def _lmdb() -> str:
    lmdb = importlib.import_module("lmdb")

    with tempfile.TemporaryDirectory() as folder:
        environment = lmdb.open(folder, map_size=1 << 20)
        with environment.begin(write=True) as transaction:
            transaction.put(b"key", b"value")
        with environment.begin() as transaction:
            assert transaction.get(b"key") == b"value"
        environment.close()
    return ".".join(map(str, lmdb.version()))


def _protobuf() -> str:
    from google.protobuf import __version__, struct_pb2

    value = struct_pb2.Value(string_value="x")
    assert struct_pb2.Value.FromString(value.SerializeToString()) == value
    return str(__version__)


def _systemd() -> str:
    daemon = importlib.import_module("systemd.daemon")
    journal = importlib.import_module("systemd.journal")
    assert daemon.notify("STATUS=selftest") in (True, False)
    assert callable(journal.send)
    return "booted" if daemon.booted() else "not booted"


def _psutil() -> str:
    import psutil

    assert psutil.Process(os.getpid()).memory_info().rss > 0
    return str(psutil.__version__)


def _setproctitle() -> str:
    import setproctitle

    assert setproctitle.getproctitle()
    return setproctitle.__version__


def _websockets() -> str:
    speedups = importlib.import_module("websockets.speedups")
    assert speedups.apply_mask(b"\x00\x01", b"\x01\x01\x01\x01") == b"\x01\x00"
    return "native mask"


def _ssl() -> str:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return ssl.OPENSSL_VERSION


NATIVES: dict[str, Callable[[], str]] = {
    "uvloop": _uvloop,
    "PyNaCl": _nacl,
    "crc32c": _crc32c,
    "blake3": _blake3,
    "aioquic": _aioquic,
    "pylsqpack": _pylsqpack,
    "cryptography": _cryptography,
    "argon2-cffi": _argon2,
    "numpy": _numpy,
    "msgspec": _msgspec,
    "lmdb": _lmdb,
    "protobuf": _protobuf,
    "systemd-python": _systemd,
    "psutil": _psutil,
    "setproctitle": _setproctitle,
    "websockets": _websockets,
    "ssl": _ssl,
}


Result = tuple[str, bool, str]  # name, whether it works, what it said or why not


def run_each() -> list[Result]:
    """How each native part works."""
    results: list[Result] = []
    for name, trial in NATIVES.items():
        try:
            results.append((name, True, trial()))
        except (ImportError, OSError, AssertionError, RuntimeError, ValueError) as error:
            results.append((name, False, f"{type(error).__name__}: {error}"))
    asyncio.set_event_loop_policy(None)
    return results
