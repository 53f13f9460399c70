"""`tigerchat farm`: a member of a farm alone, and what can be done with a farm."""

import click

from appliance.commands.farm_verbs.alone import (
    dump_command,
    post_command,
    serve_command,
    user_command,
)
from appliance.commands.farm_verbs.growing import (
    export_command,
    import_command,
    init_command,
    invite_command,
    join_command,
    recover_command,
)
from appliance.commands.farm_verbs.site import (
    admit_command,
    exclude_command,
    leave_command,
    period_command,
    place_command,
    publish_command,
    remove_command,
    status_command,
    yield_command,
)


@click.group("farm")
def command() -> None:
    """A member of a farm alone, and what can be done with a farm."""


for _verb in (
    *(serve_command, user_command, post_command, dump_command),
    *(init_command, invite_command, join_command),
    *(recover_command, export_command, import_command),
    *(status_command, exclude_command, publish_command, place_command, yield_command),
    *(remove_command, leave_command, admit_command, period_command),
):
    command.add_command(_verb)
