"""Temporary disks: a small one in memory, and one in a file whose power can be cut."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FS_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSHING = 2
REMOUNT_TIMEOUT = 20.0


class Disk:
    """An ext4 file system in a file, mounted at `folder`."""

    def __init__(self, *, image: Path, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._image = image
        folder.mkdir()
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        _do("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", str(image))

    def mount(self) -> None:
        _do("mount", "-o", "loop", str(self._image), str(self.folder))

    def restore_power(self) -> None:
        """Mount it again. Containers that start meanwhile may hold the old mount for a while."""
        deadline = time.monotonic() + REMOUNT_TIMEOUT
        while True:
            _do("umount", str(self.folder))
            self.mount()
            try:
                (self.folder / "alive").touch()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def cut_power(self) -> None:
        """Stop all writes: unflushed data is lost."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, FS_IOC_SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING))
        finally:
            os.close(folder)


@contextmanager
def power_disk(folder: Path, *, megabytes: int = 256) -> Iterator[Disk]:
    """Mount a disk whose power can be cut; skip the test with a reason if mounts are not permitted."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("NOT TRIED: power cuts need root and mkfs.ext4, to mount a disk of their own")
    disk = Disk(image=folder / "disk.img", folder=folder / "disk", megabytes=megabytes)
    try:
        disk.mount()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"NOT TRIED: power cuts need a loop mount, and this machine permits none: {error.stderr!r}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk.folder)], check=False, capture_output=True)


@contextmanager
def small_disk(folder: Path, *, megabytes: int) -> Iterator[Path]:
    """Mount a small disk in memory; skip the test with a reason if mounts are not permitted."""
    if os.geteuid() != 0:
        pytest.skip("NOT TRIED: a full disk needs root, to mount a small one")
    mount = folder / "small"
    mount.mkdir()
    try:
        _do("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(mount))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"NOT TRIED: a full disk needs a mount, and this machine permits none: {error.stderr!r}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=False, capture_output=True)


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
