"""The farm's directory, handed to a client: which nodes serve what, signed by who publishes it."""

from typing import ClassVar

from appliance.formats.client.fields import U64, Body, Label
from appliance.formats.client.frame import Frame


class DirectoryRequest(Frame, tag="directory_request", kw_only=True):
    code: ClassVar[int] = 0x38
    request: Label | None = None


class DirectoryAnswer(Frame, tag="directory", kw_only=True):
    """`signed`: the bytes that were signed, which are UTF-8, unchanged. A reader verifies them and
    believes nothing else, `version` neither. Version 0 and empty: this node has none."""

    code: ClassVar[int] = 0x39
    version: U64
    request: Label | None = None
    signed: Body
