"""`tigerchat find`: in which room a message lies, and under which number."""

import time
from uuid import UUID

import click
import msgspec

from appliance.base.errors import ApplianceError
from appliance.base.printable import json_line, one_line
from appliance.drivers.chat.access import access_of
from appliance.drivers.chat.errors import Refused
from appliance.drivers.chat.find_message import find_message
from appliance.drivers.terminal.lines import imported_author, moment
from appliance.drivers.terminal.options import MessageId, SiteWords, site_options
from appliance.formats.client_errors import MessageUnknown


@click.command("find")
@click.argument("msg_id", type=MessageId())
@click.option("--json", "as_json", is_flag=True, help="One JSON object; `seq` is the number.")
@site_options
def command(msg_id: UUID, as_json: bool, site: SiteWords) -> None:
    """Say in which room the message with the id MSG_ID lies, its number there, its time and its
    author.

    Of several with one id it is the oldest that --user, or the token, may read.
    """
    access = access_of(**site._asdict())
    try:
        found = find_message(access.endpoints, access.token, msg_id, time.sleep)
    except Refused as error:
        if error.answer.error != MessageUnknown.code:
            raise
        raise ApplianceError(
            f"there is no message {msg_id} that this user may read, or it is no longer kept; "
            "`tigerchat send` prints the id of what it stored, `tigerchat tail --json` those of "
            "a room"
        ) from None
    if as_json:
        # the number is called as `tail --json` calls it
        plain = msgspec.to_builtins(found)
        click.echo(json_line({"seq": plain.pop("op"), **plain}))
        return
    author, told_us = found.author, found.timestamp
    if found.said_by is not None and found.said_at is not None:
        author, told_us = imported_author(found.said_by, found.author), found.said_at
    click.echo(one_line(f"{found.room} {found.op}  {moment(told_us)}  {author}"))
