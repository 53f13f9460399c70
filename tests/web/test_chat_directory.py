"""The chat page goes by the farm's directory, and takes none that does not fit."""

import json

from appliance.base.signature import SigningKey
from appliance.cores.directory.signed import sign_delegation, sign_directory
from appliance.formats.site import FARM
from tests.web.site import LiveSite, wait_for
from tests.web.window import Kept, Windows, without_webtransport

TAKE = """async ([key, first, second]) => {
  const { Directory } = await import("/web/chat/directory.js");
  const directory = new Directory(key);
  const taken = [await directory.take(first), await directory.take(second)];
  return [...taken, directory.refused, directory.content?.version ?? 0];
}"""
ORDERS = """async ([key, signed, known]) => {
  const { Directory } = await import("/web/chat/directory.js");
  const directory = new Directory(key);
  await directory.take(signed);
  return Array.from({ length: 2000 }, () => directory.order(known[0], known));
}"""
SITE, NODE, STRANGER = (SigningKey(bytes([number]) * 32) for number in (1, 2, 3))
PLACES = {"wss://[::1]:1/v1": 10, "wss://[::1]:2/v1": 30, "wss://[::1]:3/v1": 90}


def directory(version: int, *, signer: SigningKey = NODE, **more: object) -> str:
    """One that the site vouches for, or whoever signs it."""
    content = {
        "cluster": FARM,
        "version": version,
        "publisher": 1,
        "words": 'grüße "\\\n\x1f \u2028',
        "endpoints": [{"address": url, "weight": weight} for url, weight in PLACES.items()],
    } | more
    vouching = SITE if signer is NODE else signer
    delegation = sign_delegation(vouching, FARM, {1: signer.public})
    return sign_directory(signer, content, delegation).decode()


def test_the_page_takes_the_directory_that_its_node_hands_out(
    site: LiveSite, window: Windows
) -> None:
    anna = window("anna")
    fetch = "async (place) => await (await fetch(place)).text()"
    wait_for(lambda: len(anna.page.evaluate(fetch, "/directory")) > 100, "a directory")
    signed = anna.page.evaluate(fetch, "/directory")
    key = json.loads(anna.page.evaluate(fetch, "/nodes.json"))["farm_key"]
    assert key == site.site.farm_key.hex()
    version = json.loads(signed)["content"]["version"]
    assert anna.page.evaluate(TAKE, [key, signed, signed]) == [True, False, "", version]
    heard: list[str] = []

    def hears() -> bool:
        anna.page.wait_for_timeout(50)  # the browser's events come in here
        return any('"type":"directory"' in frame for frame in heard)

    def hear(frame: str | bytes) -> None:  # no `heard.append`: Playwright sets an attribute on it
        heard.append(str(frame))

    without_webtransport(anna.page.context)
    anna.page.on("websocket", lambda socket: socket.on("framereceived", hear))
    anna.page.reload()
    anna.wait_live()
    wait_for(hears, "the page to ask its node")


def test_the_page_refuses_what_does_not_fit_and_keeps_what_it_had(kept: Kept) -> None:
    page, key = kept("anna", 0).page, SITE.public.hex()
    good = directory(9)
    bad = {
        "signature": directory(10).replace('"weight":90', '"weight":91'),
        "delegation": directory(10, signer=STRANGER),
        "version": directory(8),
        "malformed": directory(10)[:-1],
    }
    for word, signed in bad.items():
        assert page.evaluate(TAKE, [key, good, signed]) == [True, False, word, 9]
    assert page.evaluate(TAKE, [key, good, directory(10)]) == [True, True, "", 10]
    assert page.evaluate(TAKE, ["", good, good]) == [False, False, "", 0]  # no key, no trust


def test_the_page_chooses_its_next_node_by_weight(kept: Kept) -> None:
    page = kept("anna", 0).page
    here, unlisted = "wss://[::1]:9/v1", "wss://[::1]:8/v1"
    orders = page.evaluate(ORDERS, [SITE.public.hex(), directory(9), [here, unlisted]])
    for order in orders:
        assert order[0] == here and order[-1] == unlisted and sorted(order[1:-1]) == sorted(PLACES)
    for url, weight in PLACES.items():
        share = sum(order[1] == url for order in orders) / len(orders)
        assert abs(share - weight / 130) < 0.06, (url, share)


def test_the_page_passes_over_who_has_left_until_the_directory_has_expired(window: Windows) -> None:
    page, key = window("anna").page, SITE.public.hex()
    here, gone, unlisted = (f"wss://[::1]:{port}/v1" for port in (9, 7, 8))
    left = [{"node": 5, "addresses": [gone, next(iter(PLACES))]}]

    def orders(expires: int) -> list[list[str]]:
        signed = directory(9, left=left, expires=expires)
        found = page.evaluate(ORDERS, [key, signed, [here, gone, unlisted]])
        assert all(sorted(order[1:4]) == sorted(PLACES) for order in found)
        return [order[4:] for order in found]

    assert all(order == [unlisted] for order in orders(1 << 45))
    assert all(order == [unlisted, gone] for order in orders(1))
