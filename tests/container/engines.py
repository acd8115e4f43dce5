"""The engine that builds and runs images: Docker, or buildah and podman with a base image made by the tests."""

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

from tests.container import stand_ins
from tests.support import ROOT

SUITE: Final = "trixie"
"""The Debian release of a base; its Python has the version of the Dockerfile's base."""

PYTHON: Final = "3.13"
GLIBCS: Final = ("2_17", "2_28", "2_34")
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


class CannotRunError(Exception):
    """No image can be built and run here; the text gives the reason."""


class CallFailedError(subprocess.SubprocessError):
    """A command failed; the text has the end of its output."""


class Engine(ABC):
    """The command line that Docker and podman share."""

    command: Sequence[str]
    run_options: Sequence[str] = ()

    @abstractmethod
    def build(self, tag: str, folder: Path) -> None:
        """Build the image of a folder that has a Dockerfile."""

    @abstractmethod
    def provide(self, image: str) -> None:
        """Make an image of others available; raise CannotRunError if that is not possible."""

    @abstractmethod
    def network(self, port: int) -> Sequence[str]:
        """Return the options that publish the service on a port of this machine."""

    @abstractmethod
    def close(self) -> None:
        """Clean up after the last test."""

    def log(self, container: str) -> str:
        """Return the output of a container; the command repeats it on stdout and stderr."""
        ask = [*self.command, "logs", container]
        ran = subprocess.run(ask, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return ran.stdout.decode(errors="replace")

    def ask(self, *arguments: str, timeout: float = 60.0) -> str:
        """Run a command of the engine, and return its stdout."""
        return call(*self.command, *arguments, timeout=timeout)


class Docker(Engine):
    """The Docker engine that the docker command uses."""

    command = ("docker",)

    def build(self, tag: str, folder: Path) -> None:
        self.ask("build", "--tag", tag, str(folder), timeout=600)

    def provide(self, image: str) -> None:
        self.ask("pull", "--quiet", image, timeout=300)

    def network(self, port: int) -> Sequence[str]:
        return ("--publish", f"127.0.0.1:{port}:8080")

    def close(self) -> None:
        """Do nothing: keep the build cache for the next build."""


class Podman(Engine):
    """Debian's buildah and podman with their own storage, for machines without an engine and with few privileges."""

    # Podman would raise limits, which a sandbox may forbid, and mount a tmpfs over /tmp.
    run_options = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", "--read-only-tmpfs=false")

    def __init__(self, *, folder: Path) -> None:
        self._folder = folder
        self._store = ("--root", str(folder / "store"), "--runroot", str(folder / "run"))
        self.command = ("podman", *self._store, "--runtime", "runc")

    def prepare(self) -> None:
        """Make the base image and download all packages, since the build has no network."""
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

    def provide(self, image: str) -> None:
        """Make the image of the programs of this machine, since none can be pulled."""
        archive = self._folder / "stand-in.tar"
        try:
            stand_in = stand_ins.find(image)
            stand_ins.write(stand_in, archive)
        except stand_ins.NotMadeError as reason:
            raise CannotRunError(str(reason)) from None
        changes = [f"--change={change}" for change in stand_ins.changes(stand_in)]
        self.ask("import", "--quiet", *changes, str(archive), f"docker.io/library/{image}", timeout=120)
        archive.unlink()

    def network(self, port: int) -> Sequence[str]:
        return ("--network=host", "--env", f"ERELONG_SERVER__PORT={port}")

    def close(self) -> None:
        """Delete the storage."""
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
        options = ["--no-deps", "--only-binary=:all:", "--require-hashes", f"--requirement={ROOT / 'requirements.txt'}"]
        where = f"--dest={self._folder / 'wheels'}"
        call(*PIP, "download", *options, f"--python-version={PYTHON}", *platforms, where, timeout=300)
        (self._folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")


def find_engine(folder: Path) -> Engine:
    """Return the engine of this machine, or one made in the folder; raise CannotRunError without either."""
    if _has_docker():
        return Docker()
    engine = Podman(folder=folder)
    engine.prepare()
    return engine


def call(*command: str, timeout: float) -> str:
    """Run a command and return its stdout."""
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
    match = re.search(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def _mirrors() -> list[str]:
    """Return the package mirrors of this machine; without any, mmdebstrap uses the public one."""
    ask = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    return call(*ask, timeout=10).split()
