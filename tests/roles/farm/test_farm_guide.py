"""The directory as commands go by it: what does not fit is refused, weights count."""

import asyncio
import contextlib
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.base.signature import SigningKey
from appliance.cores.directory.signed import sign_delegation, sign_directory
from appliance.drivers.chat.access import Access
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.endpoint import Endpoint, endpoint_of_url
from appliance.drivers.host.node_folder import FARM_DIRECTORY_FILE
from appliance.formats.site import FARM
from appliance.roles.operator.guide import DirectoryGuide, guide_of
from tests.drivers.chat.small_site import SmallSite
from tests.patience import HUNG_S

SITE, NODE, STRANGER = (SigningKey(bytes([number]) * 32) for number in (1, 2, 3))
TOP = Path(__file__).resolve().parents[3]


def directory(
    urls: dict[str, int], version: int = 5, *, signer: SigningKey = NODE, **more: Any
) -> bytes:
    """A directory with these addresses and weights; `signer` is one that the site vouches for, or
    none."""
    content = {
        "cluster": FARM,
        "version": version,
        "term": 1,
        "publisher": 1,
        "expires": 1,
        "endpoints": [
            {"identity": url, "node": number, "address": url, "shard": 0, "weight": weight}
            for number, (url, weight) in enumerate(urls.items(), 1)
        ],
        "excluded": [],
        "shippers": {},
        "placement": {},
    } | more
    vouching = SITE if signer is NODE else signer
    return sign_directory(signer, content, sign_delegation(vouching, FARM, {1: signer.public}))


def flipped(data: bytes) -> bytes:
    at = data.index(b'"weight":') + 10  # its second digit
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def guide(told: list[str]) -> DirectoryGuide:
    return DirectoryGuide(SITE.public, endpoint_of_url, told.append)


PLACES = {"ws://127.0.0.1:1/v1": 10, "ws://127.0.0.1:2/v1": 30, "ws://127.0.0.1:3/v1": 90}


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (flipped(directory(PLACES, 9)), "signature"),
        (directory(PLACES, 9, signer=STRANGER), "delegation"),
        (directory(PLACES, 4), "version"),
        (directory(PLACES, 9)[:-1], "malformed"),
        (b" " + directory(PLACES, 9), "malformed"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_and_the_one_before_stays(
    bad: bytes, word: str
) -> None:
    told: list[str] = []
    kept = guide(told)
    assert kept.take(directory(PLACES)) and not told
    assert not kept.take(bad)
    assert len(told) == 1 and f"does not fit ({word})" in told[0]
    assert kept.content["version"] == 5


def test_nodes_are_chosen_by_weight_and_unlisted_ones_last() -> None:
    kept = guide([])
    known = [Endpoint("127.0.0.1", port, None) for port in (3, 4)]
    assert kept.order(known) == []
    kept.take(directory(PLACES))
    orders = [[endpoint.port for endpoint in kept.order(known)] for _ in range(3000)]
    assert all(sorted(order) == [1, 2, 3, 4] and order[-1] == 4 for order in orders)
    first = Counter(order[0] for order in orders)
    for port, weight in ((1, 10), (2, 30), (3, 90)):
        assert abs(first[port] / 3000 - weight / 130) < 0.06, first


FAR_MS = 1 << 45  # later than any clock of today says


def test_who_has_left_is_passed_over_until_the_directory_has_expired() -> None:
    gone = [{"node": 9, "addresses": ["ws://127.0.0.1:4/v1", "ws://127.0.0.1:3/v1"]}]
    known = [Endpoint("127.0.0.1", port, None) for port in (3, 4, 5)]

    def ports(urls: dict[str, int], **more: Any) -> list[int]:
        kept = guide([])
        assert kept.take(directory(urls, left=gone, **more))
        return [endpoint.port for endpoint in kept.order(known)]

    order = ports(PLACES, expires=FAR_MS)
    assert sorted(order[:3]) == [1, 2, 3], "who serves at the address of one that has left is there"
    assert order[3:] == [5]
    assert ports(PLACES, expires=1)[3:] == [5, 4], "it may be back, and comes last"
    assert ports({}, expires=FAR_MS) == [5]
    alone = guide([])
    assert alone.take(directory({}, left=gone, expires=FAR_MS))
    assert [endpoint.port for endpoint in alone.order(known[:2])] == [3, 4], "better than nobody"


def test_a_command_beside_nodes_begins_with_the_newest_directory_that_lies_there(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    access = Access(
        [Endpoint("127.0.0.1", port, None) for port in (3, 4)],
        lambda: "",
        farm_key=SITE.public,
    )
    kept = [directory(PLACES, 7), directory(PLACES, 9), directory(PLACES, 8)]
    kept += [flipped(directory(PLACES, 11)), directory(PLACES, 12, signer=STRANGER)]
    for number, data in enumerate(kept):
        (tmp_path / f"node-{number}").mkdir()
        (tmp_path / f"node-{number}" / FARM_DIRECTORY_FILE).write_bytes(data)

    def version(folder: Path | None) -> int:
        found = guide_of(replace(access, folder=folder), None, told.append)
        assert found is not None
        return int(found.content.get("version", 0))

    assert version(tmp_path) == 9
    assert version(tmp_path / "node-2") == 8, "of a node that is alone on its machine"
    assert version(tmp_path / "node-3") == version(tmp_path / "none") == version(None) == 0
    assert not told, "nobody has said what lies there"


def test_a_client_goes_on_at_a_node_that_only_the_directory_names() -> None:
    async def run() -> None:
        async with SmallSite(nodes=2) as site:
            first, second = site.endpoints
            site.directory = directory({second.url: 50})
            told: list[str] = []
            async with Client([first], lambda: "a.b.c", guide=guide(told)) as client:
                room = await client.create_room("r")
                site._servers[0].close()  # and with it the connection
                async with asyncio.timeout(HUNG_S):
                    await client.send(room.room_id, "there")
                assert client.connects > 1 and not told

    asyncio.run(run())


@pytest.mark.parametrize("verb", [("send", "r", "hello"), ("tail", "r", "--last", "1")])
def test_a_command_says_that_a_directory_is_refused_and_goes_on(
    verb: tuple[str, ...], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(jwt.encode({}, Ed25519PrivateKey.generate(), algorithm="EdDSA"))

    async def run() -> str:
        async with SmallSite(nodes=1) as site:
            site.directory = flipped(directory(PLACES))
            async with Client(site.endpoints, lambda: "a.b.c") as client:
                await client.create_room("r")
            words = ["--url", site.endpoints[0].url, "--token-file", str(token)]
            done = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "appliance", *verb, *words, "--farm-key", SITE.public.hex(),
                cwd=TOP, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert done.stderr is not None
            try:
                async with asyncio.timeout(HUNG_S):
                    return (await done.stderr.readline()).decode()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    done.kill()
                await done.communicate()

    said = asyncio.run(run())
    assert "does not fit (signature)" in said, said
