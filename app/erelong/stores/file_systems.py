"""Which file system a path is on, and whether that can keep a store."""

from __future__ import annotations

from pathlib import Path

from erelong.errors import PlaceRefused

MOUNTS = Path("/proc/self/mountinfo")

# Their locks, their shared memory or their fsync are not those of one machine.
NETWORK = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p", "ceph", "lustre", "gpfs", "beegfs"),
    *("gfs2", "ocfs2", "glusterfs", "davfs", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone"),
    *("fuse.ceph-fuse", "fuse.gcsfuse", "fuse.davfs2", "fuse.juicefs"),
}


def refuse_network(folder: Path) -> None:
    """Raise `PlaceRefused` if a folder is on a network file system; where that cannot be told, it is not."""
    try:
        mounts = MOUNTS.read_text(errors="replace")
    except OSError:
        return
    type_ = type_at(folder.resolve(), mounts)
    if type_ in NETWORK:
        raise PlaceRefused(
            f"{folder} is on a network file system ({type_}), of which neither locks nor fsync can be relied upon; "
            "name a folder of a local disk with --data or [store] path"
        )


def type_at(path: Path, mounts: str) -> str:
    """The type of the file system that a path is on; of two mounted at one point the later hides the other."""
    best, type_ = -1, ""
    for line in mounts.splitlines():
        mounted, _, kind = line.partition(" - ")
        point = Path(mounted.split(" ")[4].encode().decode("unicode_escape"))
        if len(point.parts) >= best and path.is_relative_to(point):
            best, type_ = len(point.parts), kind.split(" ")[0]
    return type_
