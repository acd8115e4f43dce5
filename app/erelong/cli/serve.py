"""Commands that run the service, check its settings, and check that it is alive."""

from __future__ import annotations

import http.client
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from erelong.cli.options import folders, load_settings, settings_file
from erelong.errors import Exit
from erelong.settings.load import DEFAULT_FILE, find_near_misses
from erelong.telemetry import log

if TYPE_CHECKING:
    import argparse

    from erelong.settings.sections import Config

HEALTH_TIMEOUT = 3.0
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - how to reach a service that listens there


def serve(options: argparse.Namespace) -> int:
    from erelong import main

    settings = _settings(options)
    log.take_failures()
    if options.virtual_clock is not None and options.data is None:  # the file in the settings holds real jobs
        settings = settings.model_copy(update={"store": settings.store.model_copy(update={"kind": "memory"})})
    return main.serve(settings, folders(options), partial(load_settings, options), options.virtual_clock)


def _settings(options: argparse.Namespace) -> Config:
    """Load the settings, set up the log, and warn of variables that look like misspelt settings."""
    settings = load_settings(options)
    log.setup(settings.log.level, settings.log.format)
    for variable, setting in find_near_misses(os.environ).items():
        log.get_logger(__name__).warning("variable_ignored", variable=variable, write=setting)
    return settings


def check_config(options: argparse.Namespace) -> int:
    from erelong.handlers.registry import make_kinds
    from erelong.web.listener import refuse_open_listener

    settings = _settings(options)
    refuse_open_listener(settings)
    kinds = make_kinds(settings, folders=folders(options))
    source = settings_file(options)
    read = f"read from {source}" if source else f"there is no {DEFAULT_FILE} in {Path.cwd()}: the defaults apply"
    print(f"the settings are valid; kinds: {', '.join(kinds)}; {read}")
    return 0


def health(options: argparse.Namespace) -> int:
    url = _address(options)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Exit(f"{url!r} is not the URL of a service: write http://host:port or https://host")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=HEALTH_TIMEOUT)
    try:
        connection.request("GET", f"{parts.path}/livez")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise Exit(f"no response from {url}: {error}; check that the service is running there") from error
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise Exit(f"{url} answered {status}")
    print("alive")
    return 0


def _address(options: argparse.Namespace) -> str:
    """Return the URL of --url; without any option, that of ERELONG_URL; otherwise, that of the settings."""
    is_named = any(value is not None for value in (options.config, options.data, options.host, options.port))
    url = options.url or ("" if is_named else os.environ.get("ERELONG_URL"))
    if url:
        return str(url).rstrip("/")
    server = load_settings(options).server
    host = LOOPBACK.get(server.host, server.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"
