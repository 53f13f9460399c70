"""`GET /v1/webtransport`: what a page needs to know before it opens a WebTransport here.

A browser takes a certificate of QUIC that no authority has signed by its digest only, and only a
page can tell it that; the page asks by TCP, where its reader has accepted the node's certificate.
"""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute

from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.site_route import site_route
from appliance.formats.client.address import PATH, WEBTRANSPORT_PATH
from appliance.formats.client.frame import SUBPROTOCOL_JSON

Digests = Callable[[], list[bytes] | None]


def route(digests: Digests, hosts: Hosts) -> BaseRoute:
    """`digests` of the certificates that QUIC shows about now, empty where any authority's does;
    None where there is no QUIC."""

    async def answer(request: Request) -> Response:
        known = digests()
        if known is None:
            return PlainTextResponse("no QUIC here: clients speak no TLS\n", status_code=404)
        return JSONResponse(
            {
                "path": f"{PATH}/{SUBPROTOCOL_JSON}",
                "certificate_hashes": [digest.hex() for digest in known],
            }
        )

    return site_route(WEBTRANSPORT_PATH, {"GET": answer}, hosts)
