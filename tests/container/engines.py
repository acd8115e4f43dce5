"""What builds and runs images here: a Docker engine, or buildah and podman over a base made on the spot."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
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


class CallFailedError(subprocess.SubprocessError):
    """A command failed; shows the end of what it wrote."""


class Engine(ABC):
    """A command line that builds images and runs containers, such as Docker and podman share."""

    command: Sequence[str]
    run_options: Sequence[str] = ()

    @abstractmethod
    def build(self, tag: str, folder: Path) -> None:
        """Build the image of a folder with a Dockerfile."""

    @abstractmethod
    def network(self, port: int) -> Sequence[str]:
        """The options that let the service of a container be reached on a port of this machine."""

    @abstractmethod
    def close(self) -> None:
        """Clean up when all is over."""

    def log(self, container: str) -> str:
        """What a container has written; the command gives its stdout and stderr back as its own."""
        ask = [*self.command, "logs", container]
        ran = subprocess.run(ask, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return ran.stdout.decode(errors="replace")

    def ask(self, *arguments: str, timeout: float = 60.0) -> str:
        """Give a command, and return what it wrote to stdout."""
        return call(*self.command, *arguments, timeout=timeout)


class Docker(Engine):
    """A Docker engine, found as the docker command finds it."""

    command = ("docker",)

    def build(self, tag: str, folder: Path) -> None:
        self.ask("build", "--tag", tag, str(folder), timeout=600)

    def network(self, port: int) -> Sequence[str]:
        return ("--publish", f"127.0.0.1:{port}:8080")

    def close(self) -> None:
        """Nothing: what was built is left for the next build to use."""


class Podman(Engine):
    """Debian's buildah and podman with a store of their own, where no engine runs and little is permitted."""

    # Podman would raise the limits, a right that a sandbox may lack, and lay a tmpfs over /tmp.
    run_options = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", "--read-only-tmpfs=false")

    def __init__(self, *, folder: Path) -> None:
        self._folder = folder
        self._store = ("--root", str(folder / "store"), "--runroot", str(folder / "run"))
        self.command = ("podman", *self._store, "--runtime", "runc")

    def prepare(self) -> None:
        """Make what the Dockerfile builds upon, and fetch what it installs: its build reaches no network."""
        missing = [name for name in ("buildah", "podman", "runc", "mmdebstrap") if shutil.which(name) is None]
        if missing or os.geteuid() != 0:
            raise CannotRunError(f"there is no Docker engine, and {', '.join(missing) or 'root'} is missing")
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
        call("mmdebstrap", *options, SUITE, str(root), *_mirrors()[:1], timeout=300)
        self.ask("import", "--quiet", str(root), f"docker.io/library/{name}", timeout=120)
        root.unlink()

    def _fetch_wheels(self) -> None:
        platforms = [f"--platform=manylinux_{glibc}_{platform.machine()}" for glibc in GLIBCS]
        what = ["--no-deps", "--only-binary=:all:", "--require-hashes", f"--requirement={ROOT / 'requirements.txt'}"]
        where = f"--dest={self._folder / 'wheels'}"
        call(*PIP, "download", *what, f"--python-version={PYTHON}", *platforms, where, timeout=300)
        (self._folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")


def find_engine(folder: Path) -> Engine:
    """The engine of this machine, or one made in the folder; raise CannotRunError when there is none."""
    if _has_docker():
        return Docker()
    engine = Podman(folder=folder)
    engine.prepare()
    return engine


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


def _mirrors() -> list[str]:
    """Where this machine's own packages come from; none, and the program takes that of everybody."""
    ask = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    return call(*ask, timeout=10).split()
