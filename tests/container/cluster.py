"""The services of a compose file, run by an engine that has no compose, on a network of their own."""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import yaml  # type: ignore[import-untyped]  # PyYAML has no annotations

from tests.container.engines import CallFailedError, Engine
from tests.container.names import Names

LOOK: Final = 0.05
START_TIME: Final = 60.0
IGNORED: Final = frozenset({"build", "depends_on", "healthcheck", "image", "ports", "ulimits", "logging"})
"""Keys that the test acts on itself, or that its engine may not set."""


class Service:
    """One container of the cluster."""

    def __init__(self, *, engine: Engine, name: str, container: str, address: str) -> None:
        self.name = name
        self.container = container
        self._engine = engine
        self._url = f"http://{address}:8080"

    def ask(self, method: str, path: str, body: object = None, *, timeout: float = 30.0) -> tuple[int, Any]:
        """Send a request; return 0 if there is no answer."""
        data = None if body is None else orjson.dumps(body)
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, orjson.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, ValueError) as error:
            return 0, str(error)

    def is_ready(self) -> bool:
        return self.ask("GET", "/readyz", timeout=1.0)[0] == 200

    def is_alive(self) -> bool:
        return self.ask("GET", "/livez", timeout=1.0)[0] == 200

    def kill(self) -> None:
        """Kill its first process from outside, as the kernel does when memory is short."""
        os.kill(int(self._engine.ask("inspect", "--format={{.State.Pid}}", self.container)), signal.SIGKILL)

    def run(self, *command: str) -> str:
        return self._engine.ask("exec", self.container, *command)

    def stop(self) -> int:
        """Stop it within the time of the file; return its exit code."""
        self._engine.ask("stop", self.container, timeout=90.0)
        return int(self._engine.ask("wait", self.container))

    def log(self) -> str:
        return self._engine.log(self.container)


class Cluster:
    """All services of a file. A key of the file that is not known here is an error: it would not be tested."""

    def __init__(self, *, engine: Engine, file: Path, folder: Path, images: Mapping[str, str]) -> None:
        """Use other `images` for some of those in the file, and `folder` for its configs."""
        self._engine = engine
        self._folder = folder
        self._images = images
        self._file: dict[str, Any] = yaml.safe_load(file.read_text())
        self._id = f"erelong-cluster-{os.getpid()}-{time.time_ns() % 1_000_000}"
        self._prefix = f"10.213.{os.getpid() % 250 + 1}"
        addresses = {name: f"{self._prefix}.{number}" for number, name in enumerate(self._file["services"], 11)}
        self._addresses = addresses
        self._names: Names | None = None
        self.services: dict[str, Service] = {}

    def images(self) -> set[str]:
        """Return the images that others make."""
        return {given["image"] for given in self._file["services"].values()} - self._images.keys()

    def start(self) -> None:
        """Start the services, each when those that it depends on are healthy."""
        self._engine.ask("network", "create", f"--subnet={self._prefix}.0/24", self._id)
        self._names = Names(address=f"{self._prefix}.1", names=self._addresses)
        waiting = dict(self._file["services"])
        while waiting:
            name = next(
                name for name, given in waiting.items() if given.get("depends_on", {}).keys() <= {*self.services}
            )
            for other, condition in waiting[name].get("depends_on", {}).items():
                assert condition == {"condition": "service_healthy"}
                self.wait_until(lambda other=other: self._is_healthy(other), f"{other} is healthy")  # type: ignore[misc]
            self._launch(name, waiting.pop(name))

    def close(self) -> None:
        for service in self.services.values():
            self._try("kill", service.container)
            self._try("rm", "--force", service.container)
        for volume in self._file.get("volumes", {}):
            self._try("volume", "rm", f"{self._id}-{volume}")
        if self._names is not None:
            self._names.close()
        self._try("network", "rm", self._id)

    def wait_until(self, is_so: Callable[[], bool], what: str, timeout: float = START_TIME) -> None:
        until = time.monotonic() + timeout
        while not is_so():
            logs = "\n".join(f"{name}: {service.log()[-1500:]}" for name, service in self.services.items())
            assert time.monotonic() < until, f"not within {timeout:g} s: {what}\n{logs}"
            time.sleep(LOOK)

    def _launch(self, name: str, given: Mapping[str, Any]) -> None:
        container = f"{self._id}-{name}"
        options = [option for key, value in given.items() if key not in IGNORED for option in self._options(key, value)]
        address = self._addresses[name]
        network = [f"--network={self._id}", f"--ip={address}", f"--dns={self._prefix}.1", "--dns-search=."]
        image = self._images.get(given["image"], given["image"])
        command = ("run", "--detach", f"--name={container}", *self._engine.run_options, *network, *options, image)
        self.services[name] = Service(engine=self._engine, name=name, container=container, address=address)
        self._engine.ask(*command)

    def _options(self, key: str, value: Any) -> Sequence[str]:
        """Return the options of a container for one key of its service."""
        match key:
            case "environment":
                return [f"--env={name}={_filled_in(text)}" for name, text in value.items()]
            case "volumes":
                return [f"--volume={self._id}-{volume}" for volume in value]
            case "configs":
                return [f"--volume={self._write(config['source'])}:{config['target']}:ro" for config in value]
            case "read_only":
                return ["--read-only"] if value else []
            case "cap_drop":
                return [f"--cap-drop={name}" for name in value]
            case "security_opt":
                return [f"--security-opt={_security(text)}" for text in value]
            case "restart":
                return [f"--restart={value}"]
            case "stop_grace_period":
                return [f"--stop-timeout={value.removesuffix('s')}"]
            case "mem_limit":
                return [f"--memory={value}"]
            case "pids_limit":
                return [f"--pids-limit={value}"]
            case "shm_size":
                return [f"--shm-size={value}"]
            case _:
                raise ValueError(f"the test does not know the key {key} of a service")

    def _write(self, config: str) -> Path:
        path = self._folder / config
        path.write_text(self._file["configs"][config]["content"])
        path.chmod(0o644)
        return path

    def _is_healthy(self, name: str) -> bool:
        form, *command = self._file["services"][name]["healthcheck"]["test"]
        assert form == "CMD"
        return self._try("exec", self.services[name].container, *command)

    def _try(self, *arguments: str) -> bool:
        try:
            self._engine.ask(*arguments)
        except CallFailedError:
            return False
        return True


def _filled_in(text: str) -> str:
    """Fill in the defaults of variables: ${NAME:-default}."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def _security(text: str) -> str:
    """Return an option in the form that both engines read."""
    name, _, value = text.partition(":")
    return name if value == "true" else text
