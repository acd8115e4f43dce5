"""A name server for containers, as the network of Docker has one."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

IP_FREEBIND: Final = 15  # binds the address of a bridge before it exists
HEAD: Final = struct.Struct(">HHHHHH")
ADDRESS, UNKNOWN, KNOWN = 1, 0x8183, 0x8180  # the type of a question; the flags of the answers


class Names:
    """Answers questions for the addresses of names, at port 53 of an address."""

    def __init__(self, *, address: str, names: Mapping[str, str]) -> None:
        self._names = names
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        self._socket.bind((address, 53))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                question, client = self._socket.recvfrom(512)
            except OSError:
                return
            if len(question) <= HEAD.size:
                return
            with suppress(OSError, ValueError, IndexError):
                self._socket.sendto(self._answer(question), client)

    def _answer(self, question: bytes) -> bytes:
        number, *_ = HEAD.unpack_from(question)
        labels, at = [], HEAD.size
        while length := question[at]:
            labels.append(question[at + 1 : at + 1 + length].decode())
            at += 1 + length
        (type_,) = struct.unpack_from(">H", question, at + 1)
        asked = question[HEAD.size : at + 5]
        address = self._names.get(".".join(labels).lower())
        if address is None or type_ != ADDRESS:
            return HEAD.pack(number, UNKNOWN if address is None else KNOWN, 1, 0, 0, 0) + asked
        record = struct.pack(">HHHIH", 0xC00C, ADDRESS, 1, 1, 4) + socket.inet_aton(address)
        return HEAD.pack(number, KNOWN, 1, 1, 0, 0) + asked + record
