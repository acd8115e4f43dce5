"""Images that cannot be pulled, made of the programs of this machine."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

SHELL: Final = ("/bin/sh", "/bin/cat", "/bin/mkdir", "/bin/chmod")
ZONE: Final = "/usr/share/zoneinfo/UTC"
POSTGRES: Final = """#!/bin/sh
# As the official image: the first start makes the user and a database of its name.
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 \\
        --encoding=UTF8 --locale=C --no-sync
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "CREATE DATABASE $POSTGRES_USER" | postgres --single -D "$PGDATA" postgres
fi
exec postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql
"""
PASSWD: Final = "root:x:0:0:root:/:/bin/sh\nservice:x:999:999::/:/bin/sh\n"
OWNER: Final = 999


class NotMadeError(Exception):
    """A program is missing on this machine; the text names its package."""


class StandIn(NamedTuple):
    """The files of an image, the folders that its user owns, and how it is run."""

    programs: tuple[str, ...]
    folders: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()
    files: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    command: str = ""


def find(image: str) -> StandIn:
    """Return the stand-in for an image by its name, whatever its tag."""
    match image.partition(":")[0]:
        case "postgres":
            return _postgres()
        case "haproxy":
            return _haproxy()
        case name:
            raise NotMadeError(f"no stand-in for the image {name}")


def _postgres() -> StandIn:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise NotMadeError("apt-get install postgresql")
    home = found[-1].parents[1]
    data = "/var/lib/postgresql/data"
    return StandIn(
        programs=(*SHELL, ZONE, *[str(home / "bin" / name) for name in ("postgres", "initdb", "pg_isready")]),
        folders=(str(home / "lib"), f"/usr/share/postgresql/{home.name}"),
        owned=(data, "/var/run/postgresql", "/tmp"),
        files={"/entry": POSTGRES},
        environment={"PGDATA": data, "TZ": "UTC", "PATH": f"{home}/bin:/usr/bin:/bin"},
        command="/entry",
    )


def _haproxy() -> StandIn:
    program = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
    if program is None:
        raise NotMadeError("apt-get install haproxy")
    return StandIn(programs=(*SHELL, program), command=f"{program} -f /usr/local/etc/haproxy/haproxy.cfg")


def write(stand_in: StandIn, archive: Path) -> None:
    """Write the file system of an image."""
    with tarfile.open(archive, "w") as tar:
        for name in _files(stand_in):
            _add(tar, Path(name))
        for name, text in {"/etc/passwd": PASSWD, **stand_in.files}.items():
            _add_text(tar, name, text)
        for name in stand_in.owned:
            folder = tarfile.TarInfo(name.lstrip("/"))
            folder.type, folder.mode, folder.uid, folder.gid = tarfile.DIRTYPE, 0o755, OWNER, OWNER
            tar.addfile(folder)


def changes(stand_in: StandIn) -> Iterator[str]:
    """Yield what an import of the file system has to set."""
    yield f"USER {OWNER}"
    yield f"ENTRYPOINT {stand_in.command}"
    for name, value in stand_in.environment.items():
        yield f"ENV {name}={value}"


def _files(stand_in: StandIn) -> list[str]:
    """Return the paths of all files, without what only compiles queries."""
    modules = [
        str(path)
        for folder in stand_in.folders
        for path in Path(folder).rglob("*")
        if path.is_file() and "bitcode" not in path.parts and "llvmjit" not in path.name
    ]
    programs = [*stand_in.programs, *[name for name in modules if name.endswith(".so")]]
    return sorted({*stand_in.programs, *modules, *_libraries(programs)})


def _libraries(programs: list[str]) -> Iterator[str]:
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    for match in re.finditer(r"(?:=> )?(/\S+) \(0x", listed):
        yield match[1]


def _add(tar: tarfile.TarFile, path: Path) -> None:
    """Add a file under its own name, whatever links lead to it."""
    entry = tar.gettarinfo(str(path.resolve()), arcname=str(path).lstrip("/"))
    entry.uid = entry.gid = 0
    with path.open("rb") as file:
        tar.addfile(entry, file)


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.size, entry.mode = len(text.encode()), 0o755
    tar.addfile(entry, io.BytesIO(text.encode()))
