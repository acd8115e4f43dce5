"""Commands that run the service, check its settings, and ask it whether it is alive."""

from __future__ import annotations

import http.client
import os
from functools import partial
from typing import TYPE_CHECKING

from erelong.cli.options import folders, load_settings
from erelong.errors import Exit
from erelong.settings.load import find_near_misses
from erelong.telemetry import log

if TYPE_CHECKING:
    import argparse

    from erelong.settings.sections import Config

HEALTH_TIMEOUT = 3.0
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - where to ask one that listens there


def serve(asked: argparse.Namespace) -> int:
    from erelong import main

    settings = _settings(asked)
    log.take_failures()
    return main.serve(settings, folders(asked), partial(load_settings, asked))


def _settings(asked: argparse.Namespace) -> Config:
    """Load the settings, set up the log by them, and warn of variables that look like settings and are none."""
    settings = load_settings(asked)
    log.setup(settings.log.level, settings.log.format)
    for variable, meant in find_near_misses(os.environ).items():
        log.get_logger(__name__).warning("variable_ignored", variable=variable, write=meant)
    return settings


def check_config(asked: argparse.Namespace) -> int:
    from erelong.handlers.registry import make_kinds
    from erelong.web.listener import refuse_open_listener

    settings = _settings(asked)
    refuse_open_listener(settings)
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
