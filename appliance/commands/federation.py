"""`tigerchat federation`: rooms shared between sites."""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click

from appliance.cores.federation.parameters import Parameters
from appliance.drivers.host.stdio import standard_streams
from appliance.roles.federation.participant import Attached, Participant, WritableStore
from appliance.roles.federation.store import LmdbChannelStore
from appliance.simulation.federation.store import MemoryStore


@click.group("federation")
def command() -> None:
    """Rooms shared between sites."""


def parameter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """One option for each parameter of a channel, with its default."""
    for field in reversed(fields(Parameters)):
        assert field.default is not MISSING
        name = field.name.replace("_", "-")
        kind = type(field.default)
        flag = f"--{name}/--no-{name}" if kind is bool else f"--{name}"
        option = click.option(flag, field.name, type=kind, default=field.default, show_default=True)
        function = option(function)
    return function


@command.command("participant")
@click.option("--name", required=True, metavar="NAME", help="Name of this participant.")
@click.option("--channel", required=True, metavar="NAME", help="Name of the channel.")
@click.option(
    "--listen",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve connections to this port of 127.0.0.1 instead of standard input and output; "
    "0: any, printed on standard error.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the channel there; without it, it is forgotten at the end.",
)
@click.option("--seed", type=int, help="Of what is drawn at random; default: another each time.")
@parameter_options
def participant(
    name: str,
    channel: str,
    listen: int | None,
    folder: Path | None,
    seed: int | None,
    **parameters: Any,
) -> int:
    """Run one bare channel, so that any implementation can be attached.

    Frames: u32 big-endian size, a kind octet, a body. Kind 1 is an SDS message, 2 a JSON command
    (send, log, retrieve, stats, quit), 3 a JSON reply or event. Times are in milliseconds.
    """
    try:
        wanted = Parameters(**parameters)
    except AssertionError as error:
        raise click.UsageError(f"these parameters do not go together: {error}") from error
    drawn = int.from_bytes(os.urandom(8), "big") if seed is None else seed
    return asyncio.run(_participant(name, channel, listen, folder, drawn, wanted))


async def _participant(
    name: str,
    channel: str,
    listen: int | None,
    folder: Path | None,
    seed: int,
    parameters: Parameters,
) -> int:
    attached = Attached()
    store: WritableStore = MemoryStore() if folder is None else LmdbChannelStore(folder)
    made = attached.participant = Participant(
        name=name,
        channel=channel,
        parameters=parameters,
        store=store,
        seed=seed,
        send=attached.send,
    )
    try:
        if listen is None:
            reader, writer = await standard_streams()
            serving = asyncio.create_task(attached.serve(reader, writer))
        else:
            server = await asyncio.start_server(attached.serve, "127.0.0.1", listen)
            print(f"listening on {server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
            serving = asyncio.create_task(server.serve_forever())
        ended = asyncio.create_task(made.ended.wait())
        await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*[writer.drain() for writer in attached.writers])
        serving.cancel()
        ended.cancel()
    finally:
        made.close()
        store.close()
    return 0
