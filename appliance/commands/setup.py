"""`tigerchat setup`: asks what a machine that was started from its image has to know."""

import os
import select
from pathlib import Path

import click

from appliance.base.errors import ApplianceError, ConfigurationError, StorageError
from appliance.base.printable import one_line
from appliance.cores.setup.steps import DONE_FILE
from appliance.cores.setup.wizard import Question, Wizard
from appliance.drivers.host.durable_file import lock_folder
from appliance.node.first_start import Hands, carry_out, find_machine, refuse_other_machines

_LOCK_FOLDER = Path("/run")
_LOCK = "tigerchat-setup.lock"
_POLL_S = 1.0  # for another terminal to have answered all
_READ_SIZE, _TYPED_SIZE_MAX = 4096, 1 << 16


class Lines:
    """What somebody types, a line at a time. It ends when `done` is there: another terminal has
    been answered."""

    def __init__(self, done: Path, descriptor: int = 0) -> None:
        self._done, self._descriptor = done, descriptor
        self._typed = b""

    def read(self) -> str | None:
        """The next line; None when it was done elsewhere. StorageError when nobody is there."""
        while b"\n" not in self._typed:
            if not select.select([self._descriptor], [], [], _POLL_S)[0]:
                if self._done.exists():
                    return None
                continue
            try:
                more = os.read(self._descriptor, _READ_SIZE)
            except OSError:
                more = b""
            if not more or len(self._typed) > _TYPED_SIZE_MAX:
                raise StorageError("nobody is at this terminal any more")
            self._typed += more
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode(errors="replace")


@click.command("setup")
def command() -> None:
    """Ask for name, network and part of a machine that was started from an image, and set it up.

    The image starts this on its screen and on its serial line, until one of them was answered.
    """
    refuse_other_machines()
    if os.geteuid() != 0:
        raise ConfigurationError("only root may set a machine up")
    done = Path(DONE_FILE)
    lines = Lines(done)
    while not done.exists():
        try:
            wizard = Wizard(find_machine())
            click.echo("\nThis machine is new. An empty line takes what stands in brackets; Ctrl-C "
                       "begins again.\n")  # fmt: skip
            if converse(wizard, lines):
                set_up(wizard, lines)
        except KeyboardInterrupt:
            click.echo("\nsetup: begins again")
        except ApplianceError as error:
            click.echo(f"setup: {error}\n\nPress Enter to begin again.")
            lines.read()
    click.echo("setup: this machine is set up")


def set_up(wizard: Wizard, lines: Lines) -> None:
    """Carry out what was answered; only one terminal at a time does."""
    lock = lock_folder(_LOCK_FOLDER, _LOCK)
    try:
        carry_out(wizard.steps, Hands(tell=click.echo, pause=lines.read))
    finally:
        os.close(lock)


def converse(wizard: Wizard, lines: Lines) -> bool:
    """Ask until all is answered; False when that was done elsewhere meanwhile."""
    while (question := wizard.question) is not None:
        show(question)
        line = lines.read()
        if line is None:
            return False
        try:
            wizard.answer(line)
        except ConfigurationError as error:
            click.echo(f"  {one_line(str(error))}")
    return True


def show(question: Question) -> None:
    *lines, last = question.lines
    for line in lines:
        click.echo(line)
    default = f" [{question.default}]" if question.default else ""
    click.echo(f"{last}{default}: ", nl=False)
