"""What builds and runs images here: a Docker engine, or buildah and podman over a base made on the spot."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support import ROOT

SUITE: Final = "trixie"
"""The Debian that a base is made of: its Python is the one of the Dockerfile's base."""

PYTHON: Final = "3.13"
GLIBCS: Final = ("2_17", "2_28", "2_34")
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


class CannotRunError(Exception):
    """No image can be built and run here; says why."""


class Docker:
    """A Docker engine, found as the docker command finds it."""

    command: Sequence[str] = ("docker",)
    run_options: Sequence[str] = ()

    def prepare(self) -> None:
        """Nothing: it fetches its base by itself."""

    def build(self, tag: str, folder: Path) -> None:
        self.ask("build", "--tag", tag, str(folder), timeout=600)

    def network(self, port: int) -> Sequence[str]:
        """What lets the service be reached on a port of this machine."""
        return ("--publish", f"127.0.0.1:{port}:8080")

    def is_healthy(self, container: str) -> bool:
        """What the image's own check says."""
        return self.ask("inspect", "--format", "{{.State.Health.Status}}", container) == "healthy"

    def log(self, container: str) -> str:
        """What a container has written; the commands give back its stdout and stderr as their own."""
        both = subprocess.STDOUT
        ran = subprocess.run([*self.command, "logs", container], stdout=subprocess.PIPE, stderr=both, timeout=60)
        return ran.stdout.decode(errors="replace")

    def ask(self, *arguments: str, timeout: float = 60.0) -> str:
        return call(*self.command, *arguments, timeout=timeout)

    def close(self) -> None:
        """Leave what later builds can use again."""


class Podman(Docker):
    """Debian's buildah and podman with a store of their own, where no engine runs and little is permitted."""

    def __init__(self, *, folder: Path) -> None:
        self._folder = folder
        self._store = ("--root", str(folder / "store"), "--runroot", str(folder / "run"))
        self.command = ("podman", *self._store, "--runtime", "runc")
        # Podman would raise the limits, a right that a sandbox may lack, and lay a tmpfs over /tmp.
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.run_options = (f"--ulimit=nofile={files}:{files}", "--ulimit=nproc=4096:4096", "--read-only-tmpfs=false")

    def prepare(self) -> None:
        """Make what the Dockerfile builds upon, and fetch what it installs: its build reaches no network."""
        missing = [name for name in ("buildah", "podman", "runc", "mmdebstrap") if shutil.which(name) is None]
        if missing or os.geteuid() != 0:
            raise CannotRunError(f"there is no Docker engine, and {', '.join(missing) or 'root'} is missing")
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._make_base(_base_name())
            self._fetch_wheels()
            self.ask("run", "--rm", "--network=host", *self.run_options, _base_name(), "true")
        except (subprocess.SubprocessError, OSError) as error:
            self.close()
            raise CannotRunError(str(error)) from error

    def build(self, tag: str, folder: Path) -> None:
        mounts = [f"--volume={self._folder}/{name}:ro" for name in ("wheels:/wheels", "pip.conf:/etc/pip.conf")]
        options = ["--isolation=chroot", "--format=docker", "--pull-never", *mounts]
        call("buildah", *self._store, "build", *options, "--tag", tag, str(folder), timeout=300)

    def network(self, port: int) -> Sequence[str]:
        return ("--network=host", "--env", f"ERELONG_SERVER__PORT={port}")

    def is_healthy(self, container: str) -> bool:
        """Podman leaves the asking to systemd, which may not be there."""
        try:
            self.ask("healthcheck", "run", container)
        except CallFailedError:
            return False
        return True

    def close(self) -> None:
        """Leave nothing: it was made for one run."""
        subprocess.run([*self.command, "rm", "--all", "--force", "--time=0"], capture_output=True, timeout=60)
        subprocess.run(["umount", str(self._folder / "store" / "overlay")], capture_output=True, timeout=60)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make_base(self, name: str) -> None:
        link = 'ln -s /usr/bin/python3 "$1/usr/local/bin/python"'
        include = "--include=python3,python3-venv,ca-certificates"
        options = ["--quiet", "--variant=minbase", include, f"--customize-hook={link}"]
        root = self._folder / "base.tar"
        call("mmdebstrap", *options, SUITE, str(root), _mirror(), timeout=300)
        self.ask("import", "--quiet", str(root), f"docker.io/library/{name}", timeout=120)
        root.unlink()

    def _fetch_wheels(self) -> None:
        platforms = [f"--platform=manylinux_{glibc}_{platform.machine()}" for glibc in GLIBCS]
        what = ["--no-deps", "--only-binary=:all:", "--require-hashes", f"--requirement={ROOT / 'requirements.txt'}"]
        where = f"--dest={self._folder / 'wheels'}"
        call(*PIP, "download", *what, f"--python-version={PYTHON}", *platforms, where, timeout=300)
        (self._folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")


def find_engine(folder: Path) -> Docker:
    """The engine of this machine, ready; raise CannotRunError when there is none."""
    engine = Docker() if _has_docker() else Podman(folder=folder)
    engine.prepare()
    return engine


class CallFailedError(subprocess.SubprocessError):
    """A command failed; shows the end of what it wrote."""


def call(*command: str, timeout: float) -> str:
    """Run a command and return what it wrote to stdout."""
    ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if ran.returncode != 0:
        raise CallFailedError(f"{' '.join(command)} ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-2000:]}")
    return ran.stdout.strip()


def _has_docker() -> bool:
    try:
        call("docker", "info", timeout=10)
    except (subprocess.SubprocessError, OSError):
        return False
    return True


def _base_name() -> str:
    found = re.search(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _mirror() -> str:
    """Where this machine's own packages come from."""
    ask = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    return next(iter(call(*ask, timeout=10).split()), "http://deb.debian.org/debian")
