"""Commands that run the service, check its settings, and ask it whether it is alive."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING

from erelong.cli.options import folders, load_settings
from erelong.errors import Exit
from erelong.telemetry import log

if TYPE_CHECKING:
    import argparse

HEALTH_TIMEOUT = 3.0
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - where to ask one that listens there


def serve(asked: argparse.Namespace) -> int:
    from erelong import main

    settings = load_settings(asked)
    log.setup(settings.log.level, settings.log.format)
    log.take_failures()
    return main.serve(settings, folders(asked))


def check_config(asked: argparse.Namespace) -> int:
    from erelong.handlers.registry import make_kinds
    from erelong.web.listener import refuse_open_door

    settings = load_settings(asked)
    refuse_open_door(settings)
    kinds = make_kinds(settings, folders=folders(asked))
    print(f"the settings can be used; kinds: {', '.join(kinds)}")
    return 0


def health(asked: argparse.Namespace) -> int:
    server = load_settings(asked).server
    host = ANYWHERE.get(server.host, server.host)
    connection = http.client.HTTPConnection(host, server.port, timeout=HEALTH_TIMEOUT)
    try:
        connection.request("GET", "/livez")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise Exit(f"no answer from {host} port {server.port}: {error}") from error
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise Exit(f"{host} port {server.port} answered {status}")
    print("alive")
    return 0
