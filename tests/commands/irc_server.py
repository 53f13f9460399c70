"""A small IRC server on loopback: whoever comes is in the channel, and is told a list of lines."""

import contextlib
import socket
import threading
from collections.abc import Sequence

WELCOME = (
    ":irc.test 001 {nick} :Welcome",
    ":irc.test 005 {nick} CHANTYPES=# PREFIX=(ov)@+ STATUSMSG=@+ NETWORK=test :are supported",
    ":irc.test 376 {nick} :End of the message of the day",
)
JOINED = (
    ":{nick}!me@host JOIN {channel}",
    ":irc.test 353 {nick} = {channel} :{nick} @ann +bob carl_ d-e-f Zoë",
    ":irc.test 366 {nick} {channel} :End of names",
)


class IrcServer:
    """One client is served, in a thread. A line may have a time of its own, as a tag `@time=`;
    `{nick}` in it is what the client calls itself. A context manager."""

    def __init__(self, channel: str, lines: Sequence[str]) -> None:
        self._channel, self._lines = channel, lines
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "IrcServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the client went, or nobody came
            client, _ = self._listener.accept()
            with client:
                self._talk(client)

    def _talk(self, client: socket.socket) -> None:
        nick, registered, said = "", False, set[str]()

        def tell(*lines: str) -> None:
            words = "".join(f"{line}\r\n" for line in lines)
            client.sendall(words.replace("{nick}", nick).encode())

        for raw in client.makefile("rb"):
            command, *words = raw.decode(errors="replace").split()
            said |= {command, " ".join([command, *words[:1]])}
            if command == "NICK":
                nick = words[0].lstrip(":")
            elif command == "PING":
                tell(f":irc.test PONG irc.test {words[0]}")
            elif command == "CAP" and words[0] == "LS":
                tell(":irc.test CAP * LS :server-time")
            elif command == "CAP" and words[0] == "REQ":
                tell(":irc.test CAP * ACK :" + " ".join(words[1:]).lstrip(":"))
            elif command == "QUIT":
                return
            ready = {"NICK", "USER"} <= said and ("CAP" not in said or "CAP END" in said)
            if ready and not registered:
                registered = True
                tell(*WELCOME, *(line.replace("{channel}", self._channel) for line in JOINED))
                tell(*self._lines)
