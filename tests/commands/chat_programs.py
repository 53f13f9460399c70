"""WeeChat and irssi of Debian 12, in a tree of their own, which log what a server tells them."""

import contextlib
import os
import pty
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.patience import HUNG_S
from tests.system.local_site import wait_until
from tools import base_tree

HOME = "chats"
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
    "HOME": f"/{HOME}",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "xterm",
}
Type = Callable[[str], None]
IRSSI_SETTINGS = """
servers = ( { address = "127.0.0.1"; chatnet = "test"; port = "PORT"; autoconnect = "yes"; } );
chatnets = { test = { type = "IRC"; }; };
settings = {
  core = { real_name = "me"; user_name = "me"; nick = "me"; };
  "fe-common/core" = { autolog = "yes"; autolog_path = "/chats/logs/$tag/$0.log"; };
};
"""
WEECHAT_SETTINGS = (
    "/set logger.file.flush_delay 0",
    "/set irc.server_default.capabilities server-time",  # the log has the server's times
    "/set irc.server_default.nicks me",
    "/server add test 127.0.0.1/PORT -notls",
    "/set irc.server.test.ssl off",
    "/connect test",
)


def tree_of_programs(folder: Path) -> Path:
    """A tree with both, unpacked in `folder`."""
    base_tree.fetch_chats()
    tree = folder / "tree"
    tree.mkdir()
    unread = [f"--exclude=./{name}" for name in ("usr/share/doc", "usr/share/locale", "var")]
    command = ["tar", "--extract", *unread, "--file", base_tree.CHATS, "--directory", tree]
    subprocess.run(command, check=True)
    return tree


def _home(tree: Path) -> Path:
    """Empty, for the one who comes next."""
    home = tree / HOME
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    return home


@contextmanager
def irssi(tree: Path, port: int) -> Iterator[Type]:
    """It runs on a terminal, into which lines are typed, until the block ends."""
    (_home(tree) / "config").write_text(IRSSI_SETTINGS.replace("PORT", str(port)))
    words = ["irssi", f"--home=/{HOME}", f"--config=/{HOME}/config"]
    ours, theirs = pty.openpty()
    screen = threading.Thread(target=_read_all, args=(ours,))
    with _running(tree, words, theirs, theirs):
        os.close(theirs)
        screen.start()
        yield lambda line: os.write(ours, f"{line}\r".encode()) and None
    screen.join()
    os.close(ours)


@contextmanager
def weechat(tree: Path, port: int) -> Iterator[Type]:
    """It runs without a terminal until the block ends; lines are typed into its pipe."""
    words = ["weechat-headless", "--dir", f"/{HOME}"]
    for setting in WEECHAT_SETTINGS:
        words += ["--run-command", setting.replace("PORT", str(port))]

    def write(line: str) -> None:
        (pipe,) = (tree / HOME).glob("weechat_fifo_*")
        pipe.write_text(f"irc.server.test *{line}\n")

    with open(_home(tree) / "screen", "wb") as screen:
        with _running(tree, words, subprocess.DEVNULL, screen.fileno()):
            yield write


@contextmanager
def _running(tree: Path, words: Sequence[str], keys: int, screen: int) -> Iterator[None]:
    with subprocess.Popen(
        ["chroot", str(tree), *words],
        env=ENVIRONMENT,
        stdin=keys,
        stdout=screen,
        stderr=screen,
        start_new_session=True,
    ) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(HUNG_S)
            finally:
                process.kill()


def _read_all(terminal: int) -> None:
    """What fills its screen, so that it never waits for somebody who looks."""
    with contextlib.suppress(OSError):  # it has ended
        while os.read(terminal, 1 << 16):
            pass


def wait_for_line(tree: Path, words: str) -> None:
    """Until the log of a channel has them."""

    def there() -> bool:
        logs = (tree / HOME / "logs").rglob("*#*log")
        return any(words in log.read_text(errors="replace") for log in logs)

    wait_until(there, HUNG_S, lambda: f"{words!r} in a log")
