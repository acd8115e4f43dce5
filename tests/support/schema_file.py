"""Makes the test database of the newest schema version: python -m tests.support.schema_file.

Run it once when a schema version is released. The file never changes, since all later versions must open it.
"""

from __future__ import annotations

import asyncio
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import orjson

from erelong.model.conflict import OnConflict
from erelong.model.document import Document
from erelong.model.job import SECOND, Job
from erelong.model.outcome import End, Outcome
from erelong.model.submission import IdempotencyRecord, NewJob
from erelong.stores.base import Ending, Override, Pause, Store
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import NOW, make_failure, make_job, put

FOLDER = Path(__file__).parents[1] / "stores" / "sqlite" / "schemas"
RECORD = IdempotencyRecord("caller", "key", b"digest", life=10_000 * 24 * 3600 * SECOND)
DOCUMENT = Document("schedule", "report", 1, NOW, b'{"cron":"@daily"}')
INCOMPLETE: Any = {"on_finish": {"url": "https://app.example"}}  # as before on_finish had a form
OVERRIDE = Override(b'{"concurrency":3}', Pause(NOW, "ops", "deploy"))


async def fill(store: Store) -> None:
    """Store jobs in every state, and one of each other record."""
    labelled = {"tenant": "t1", "env": "prod"}
    await put(
        store,
        make_job(delay=3_600, key="waiting", labels=labelled, params={"order": 7}, priority=5, expires_after=60),
        make_job(delay=3_600, extras=INCOMPLETE),
        make_job(queue="mail").cancel(NOW, "not needed"),
        make_job(queue="mail").expire(NOW),
    )
    jobs = await put(store, *[make_job(key=f"k{number}", labels=labelled) for number in range(6)])
    claimed = (await store.claim([job.seq for job in jobs], now=NOW)).jobs
    lent = claimed[5].lease_out("token", NOW + 30 * SECOND)
    await store.save([lent, claimed[4].cancel(NOW, "too late")])
    await store.add([NewJob(make_job(key="k3", delay=3_600), OnConflict.REPLACE)], now=NOW)  # stays running
    await store.finish(
        [
            Ending(claimed[0], Outcome(End.SUCCEEDED, result=b'{"a":1}'), NOW + 1),
            Ending(claimed[1], make_failure(), NOW + 1, 60.0),
            Ending(claimed[2], make_failure(retryable=False), NOW + 1),
        ]
    )
    await store.save([lent.finish(Outcome(End.RELEASED), NOW + 2, answer="release")])
    await store.add([NewJob(make_job(queue="memo"))], now=NOW, record=RECORD, beside=[DOCUMENT])
    await store.override("mail", OVERRIDE)


def described(job: Job) -> dict[str, Any]:
    """Return a job as JSON for the file next to the database."""
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in job._asdict().items()}


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(path=Path(folder) / "erelong.db")
        await store.open()
        await fill(store)
        jobs = await store.get(range(1, 100))
        await store.close()
        expected = Path(folder) / "jobs.json"
        expected.write_bytes(orjson.dumps([described(job) for job in jobs.values()], option=orjson.OPT_INDENT_2))
        FOLDER.mkdir(exist_ok=True)
        with tarfile.open(FOLDER / f"{sql.SCHEMA_VERSION}.tar.gz", "w:gz") as archive:
            for name in ("erelong.db", "erelong.db.mark", "erelong.db.claims", "jobs.json"):
                archive.add(Path(folder) / name, arcname=name)


if __name__ == "__main__":
    asyncio.run(main())
