"""Picks a verb, checks that assertions are on, gives each error a sentence and a code."""

import difflib
import errno
import importlib
import keyword
import os
import sys

import click

from appliance.base.errors import ApplianceError, ConfigurationError
from appliance.drivers.terminal.standard_files import opened
from appliance.drivers.terminal.way_out import harmless

# Verb: what it does. Its module is imported only when the verb is used.
VERBS = {
    "format": "Make the keys and volumes of a site or of one node.",
    "found": "Begin a site of machines of their own.",
    "join": "Join a site, by a code of its founder or of a node.",
    "start": "Run a site on this machine, a node, or one role of a node.",
    "recover": "Give a node that lost a volume a new one, and bring it up to date.",
    "restore": "Make a new cluster out of what is left of one that is gone.",
    "member": "List, add, invite, remove, promote and retire the members of a site's shards.",
    "node": "Stop, kill, drain and start a node or a process of it; let another lead.",
    "console": "Show and act on a node on a terminal, or show it as plain text.",
    "alarm": "List the alarms of a day, say that one was seen.",
    "clock": "Bring the time of a log back that a clock was ahead of.",
    "retention": "Show and set how long messages are kept.",
    "token": "Make a token for a user, revoke tokens.",
    "room": "List rooms, create one, close one and open it again.",
    "send": "Send a message to a room.",
    "tail": "Show the newest messages of a room and those that come.",
    "topic": "Show and set what a room is about.",
    "pin": "Pin a message in a room, list those that are pinned.",
    "react": "React to a message, show who did.",
    "profile": "Show and set the name and picture that others see.",
    "find": "Say where the message lies that has an id.",
    "snapshot": "Fetch a room as a signed file, verify such a file.",
    "import": "Import mail, IRC logs or a Slack export.",
    "status": "Show how the replicas and edges of a node or site are.",
    "ship": "Show, verify and repair what is shipped as signed files.",
    "object": "Show and check the objects that replicas share; run one replica alone.",
    "farm": "See and change a site's farm; run a member of a farm alone.",
    "inspect": "Show what lies in a volume.",
    "federation": "Rooms shared between sites.",
    "report": "Verify what was shipped and report on it, in your Spark.",
    "simulate": "Run the cores in a simulated world with a seed.",
    "benchmark": "Load a site and measure it.",
    "disks": "Show the health of this machine's NVMe disks.",
    "preflight": "Compare this machine with what is expected of its model.",
    "setup": "Set up a machine that was started from an image.",
    "flash": "Write a disk image to a device and verify it.",
    "update": "Update the program of a machine from signed bundles.",
    "upgrade": "Run a site by this program, one node after the other, while it serves.",
    "support": "Write a file for whoever helps, without secrets.",
    "version": "Print the version.",
}
EXIT_REFUSED, EXIT_MISTAKE, EXIT_INTERRUPTED = 1, 2, 130

# What any verb that is given a path may run into: the error's number, and what to do about it.
_MAY_NOT = "let this user read and write it, or run as the user who owns it"
_OF_PATHS = {
    errno.EACCES: _MAY_NOT,
    errno.EPERM: _MAY_NOT,
    errno.ENAMETOOLONG: "correct the path",
}


def module_of(verb: str) -> str:
    """Name of the verb's module: the verb, unless Python keeps that word for itself."""
    return f"{verb}_" if keyword.iskeyword(verb) else verb


class Verbs(click.Group):
    """Knows all verbs by name and imports one when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"appliance.commands.{module_of(cmd_name)}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As every group does, with the nearest verb named: click knows only what is imported."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], VERBS, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.command("tigerchat", cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
def tigerchat() -> None:
    """TigerChat: a replicated chat and event log in one executable."""


def main(arguments: list[str] | None = None) -> int:
    """Run the verb in `arguments`; the exit code. Nothing that it prints commands a terminal."""
    opened()
    with harmless():
        return _run(arguments)


def _run(arguments: list[str] | None) -> int:
    if not __debug__:
        return refuse(
            "assertions are off, and they guard the data: start Python without -O and "
            "without PYTHONOPTIMIZE",
            EXIT_MISTAKE,
        )
    try:
        code = tigerchat.main(arguments, prog_name="tigerchat", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except ConfigurationError as error:
        return refuse(str(error), EXIT_MISTAKE)
    except ApplianceError as error:
        return refuse(str(error), EXIT_REFUSED)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return EXIT_MISTAKE
    except click.UsageError as error:
        command_path = error.ctx.command_path if error.ctx is not None else "tigerchat"
        return refuse(
            f"{error.format_message().rstrip('.')}; see `{command_path} --help`", EXIT_MISTAKE
        )
    except click.ClickException as error:
        return refuse(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read our lines has gone
        return EXIT_REFUSED
    except OSError as error:
        if error.errno not in _OF_PATHS or not isinstance(error.filename, str):
            raise  # a bug, or what its verb should have said in a sentence
        return refuse(f"{error.filename}: {error.strerror}; {_OF_PATHS[error.errno]}", EXIT_REFUSED)


def refuse(sentence: str, code: int) -> int:
    """Print why on stderr."""
    print(f"tigerchat: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
