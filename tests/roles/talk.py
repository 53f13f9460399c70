"""Somebody who chats over TCP while others do harm."""

import threading

from websockets.exceptions import WebSocketException

from tests.roles.edge_site import EdgeSite, until


class Talk:
    """Sends one message after the other, each acknowledged; raises at its end what went wrong."""

    def __init__(self, site: EdgeSite) -> None:
        self.said = 0
        self.failure: BaseException | None = None
        self._site, self._ended = site, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Talk":
        self._thread.start()
        until(lambda: self.said or self.failure, "somebody talks")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self.failure is not None:
            raise AssertionError(f"after {self.said} messages") from self.failure

    def _run(self) -> None:
        try:
            with self._site.chat(0) as chat:
                room = chat.room("aside")
                while not self._ended.is_set():
                    chat.say(room, self.said + 1, 1)
                    self.said += 1
                    self._ended.wait(0.02)
        except (AssertionError, OSError, WebSocketException) as error:
            self.failure = error
