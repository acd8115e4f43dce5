"""Opening the store: a server, database, login or pooler that cannot be used is refused with a remedy."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from erelong.errors import Exit, PlaceRefused, StoreCorrupt, StoreFailed, WrongClock
from erelong.stores.postgres import migrations, statements
from erelong.stores.postgres.connection import SCHEMA_NAME
from erelong.stores.postgres.store import PostgresStore
from tests.support.builders import ALL, put_one
from tests.support.needs import report_missing
from tests.support.postgres import GUARDED, PostgresServer

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(30)]

PASSWORD = "canary-password"
Make = Callable[..., str]


@pytest.fixture
def admin(postgres_server: PostgresServer) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Return a connection of a superuser, and drop the databases and roles that the test has made."""
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        yield connection
        for (name,) in connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'trial%'").fetchall():
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
        for role in ("stranger", "limited"):
            connection.execute(f"DROP ROLE IF EXISTS {role}".encode())


@pytest.fixture
def make_database(admin: psycopg.Connection[tuple[object, ...]], postgres_server: PostgresServer) -> Make:
    """Return a function that makes an empty database and returns its URL for a user."""

    def make(name: str = "trial", options: str = "", login: str = "erelong") -> str:
        admin.execute(f"CREATE DATABASE {name} {options}".encode())
        return _url(postgres_server.home, name, login)

    return make


def _url(home: Path, name: str, login: str = "erelong") -> str:
    return f"postgresql://{login}@/{name}?host={home}"


async def _refusal(url: str, *, durability: str = "normal", must_exist: bool = False, is_virtual: bool = False) -> Exit:
    """Return the exit of a store that cannot be opened; its text shows no password."""
    store = PostgresStore(url=url, durability=durability, must_exist=must_exist, is_virtual=is_virtual)
    with pytest.raises(Exit) as raised:
        await store.open()
    assert "canary" not in str(raised.value)
    return raised.value


def _execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.mark.parametrize(
    "url", [f"postgresql://u:{PASSWORD}@[bad/db", f"postgresql://u:{PASSWORD}@h/db?nonsense={PASSWORD}"]
)
async def test_malformed_url_is_refused_and_not_shown(url: str) -> None:
    exit = await _refusal(url)

    assert isinstance(exit, PlaceRefused)
    assert "postgresql://user@host/database" in str(exit)


@pytest.mark.parametrize("password", [f"x@{PASSWORD}", f"x/{PASSWORD}", f"x/{PASSWORD}@y", f"%{PASSWORD}"])
async def test_special_characters_of_a_password_must_be_encoded_and_are_not_shown(password: str) -> None:
    exit = await _refusal(f"postgresql://u:{password}@127.0.0.1/db")

    assert isinstance(exit, PlaceRefused)
    assert "[store] url cannot be read" in str(exit)
    if "@" in password:
        assert "@ as %40" in str(exit)


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        (f"postgresql://u:{PASSWORD}@127.0.0.1:1/db?sslmode=nonsense", "correct sslmode"),
        (f"postgresql://u:{PASSWORD}@127.0.0.1:1/db", "check the server"),
        (f"postgresql://u:{PASSWORD}@nowhere.invalid/db", "correct the host"),
        (f"postgresql://u:{PASSWORD}@/db?host=/nowhere", "check the server"),
    ],
)
async def test_server_that_does_not_answer_ends_the_start(url: str, remedy: str) -> None:
    exit = await _refusal(url)

    assert isinstance(exit, StoreFailed)
    assert remedy in str(exit)


async def test_wrong_database_user_and_password_are_told_apart(
    admin: psycopg.Connection[tuple[object, ...]], postgres_server: PostgresServer
) -> None:
    admin.execute("CREATE ROLE stranger LOGIN")
    home = postgres_server.home

    assert "create the database" in str(await _refusal(_url(home, "nothing")))
    assert "create the role" in str(await _refusal(_url(home, "postgres", "nobody")))
    assert "check the user and the password" in str(await _refusal(_url(home, "postgres", f"{GUARDED}:{PASSWORD}")))
    assert "check the user and the password" in str(await _refusal(_url(home, "postgres", GUARDED)))
    assert "pg_hba.conf" in str(await _refusal(_url(home, "postgres", "stranger")))


async def test_database_with_another_encoding_is_refused(make_database: Make) -> None:
    exit = await _refusal(make_database(options="ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'"))

    assert isinstance(exit, PlaceRefused)
    assert "LATIN1" in str(exit)
    assert "TEMPLATE template0" in str(exit)


async def test_old_server_is_refused(monkeypatch: pytest.MonkeyPatch, make_database: Make) -> None:
    monkeypatch.setattr("erelong.stores.postgres.connection.OLDEST_VERSION", 99_00_00)

    exit = await _refusal(make_database())

    assert re.search(r"PostgreSQL \d\d is too old; erelong needs version 99", str(exit))


async def test_user_without_rights_is_refused_until_they_are_granted(
    admin: psycopg.Connection[tuple[object, ...]], make_database: Make, postgres_server: PostgresServer
) -> None:
    admin.execute("CREATE ROLE limited LOGIN")
    url = make_database(login="limited")

    exit = await _refusal(url)
    assert "grant the user of [store] url CREATE on the database" in str(exit)

    _execute(_url(postgres_server.home, "trial"), f"CREATE SCHEMA {SCHEMA_NAME} AUTHORIZATION limited")
    store = PostgresStore(url=url, durability="normal")
    await store.open()
    job = await put_one(store)
    assert await store.list(ALL) == [job]
    await store.close()


async def test_user_without_rights_on_the_tables_is_refused(
    admin: psycopg.Connection[tuple[object, ...]], make_database: Make, postgres_server: PostgresServer
) -> None:
    admin.execute("CREATE ROLE limited LOGIN")
    url = make_database()
    store = PostgresStore(url=url, durability="normal")
    await store.open()
    await store.close()

    for grant in (f"USAGE ON SCHEMA {SCHEMA_NAME}", f"SELECT ON ALL TABLES IN SCHEMA {SCHEMA_NAME}"):
        exit = await _refusal(_url(postgres_server.home, "trial", "limited"))
        assert "grant the user of [store] url CREATE on the database, or all rights on its schema" in str(exit)
        _execute(url, f"GRANT {grant} TO limited")
    exit = await _refusal(_url(postgres_server.home, "trial", "limited"))
    assert "all rights on its schema" in str(exit)
    _execute(url, "DROP OWNED BY limited")


async def test_server_without_a_free_session_is_refused(
    admin: psycopg.Connection[tuple[object, ...]], make_database: Make
) -> None:
    admin.execute("CREATE ROLE limited LOGIN CONNECTION LIMIT 0")

    exit = await _refusal(make_database(login="limited"))

    assert isinstance(exit, StoreFailed)
    assert "raise max_connections or the limit of the role" in str(exit)


async def test_server_without_tls_is_refused_where_the_url_asks_for_it() -> None:
    async def refuse_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"N")
        await reader.read()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(refuse_tls, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        exit = await _refusal(f"postgresql://u:{PASSWORD}@127.0.0.1:{port}/db?sslmode=require")

    assert isinstance(exit, StoreFailed)
    assert "correct sslmode in [store] url, or turn ssl on" in str(exit)


async def test_settings_of_the_url_and_the_role_do_not_change_what_is_stored(
    admin: psycopg.Connection[tuple[object, ...]], make_database: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    url = make_database()
    for setting in ("client_encoding = 'LATIN1'", "statement_timeout = '300ms'", "search_path = public"):
        admin.execute(f"ALTER DATABASE trial SET {setting}".encode())

    store = PostgresStore(url=f"{url}&client_encoding=LATIN1&options=-c%20lock_timeout%3D1ms", durability="normal")
    await store.open()
    job = await put_one(store, labels={"name": "J\u00fcrgen \u65e5\u672c"})
    await store.close()

    store = PostgresStore(url=url, durability="normal")
    await store.open()
    assert await store._lister.call(lambda: store._slow.connection.row("SHOW statement_timeout")) == ("31s",)
    assert await store.label_values("name") == ["J\u00fcrgen \u65e5\u672c"]
    assert await store.list(ALL) == [job]
    await store.close()


async def test_schema_of_another_program_is_refused(make_database: Make) -> None:
    url = make_database()
    _execute(url, f"CREATE SCHEMA {SCHEMA_NAME}", f"CREATE TABLE {SCHEMA_NAME}.theirs (a int)")

    exit = await _refusal(url)

    assert isinstance(exit, StoreCorrupt)
    assert "belongs to another program" in str(exit)


async def test_newer_schema_and_the_other_clock_are_refused(make_database: Make) -> None:
    url = make_database()
    store = PostgresStore(url=url, durability="normal")
    await store.open()
    await store.close()

    assert isinstance(await _refusal(url, is_virtual=True), WrongClock)
    _execute(url, f"UPDATE {SCHEMA_NAME}.meta SET schema_version = 99")
    exit = await _refusal(url)
    assert isinstance(exit, StoreCorrupt)
    assert "schema version 99" in str(exit)


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that releases a next schema version with one statement."""

    def release(statement: str) -> None:
        monkeypatch.setattr(migrations, "MIGRATIONS", (migrations.Migration(2, [statement]),))
        monkeypatch.setattr(statements, "SCHEMA_VERSION", 2)

    return release


async def test_older_schema_is_migrated(make_database: Make, next_version: Callable[[str], None]) -> None:
    url = make_database()
    store = PostgresStore(url=url, durability="normal")
    await store.open()
    job = await put_one(store)
    await store.close()

    next_version("ALTER TABLE jobs ADD COLUMN more int")
    for _ in range(2):
        store = PostgresStore(url=url, durability="normal")
        await store.open()
        assert await store.list(ALL) == [job]
        await store.close()

    with psycopg.connect(url) as connection:
        assert connection.execute(f"SELECT schema_version FROM {SCHEMA_NAME}.meta".encode()).fetchone() == (2,)


async def test_migration_that_fails_changes_nothing(make_database: Make, next_version: Callable[[str], None]) -> None:
    url = make_database()
    store = PostgresStore(url=url, durability="normal")
    await store.open()
    await store.close()

    next_version("ALTER TABLE jobs ADD COLUMN more int, DROP COLUMN never")
    exit = await _refusal(url)

    assert isinstance(exit, StoreFailed)
    assert "never" in str(exit)
    with psycopg.connect(url) as connection:
        assert connection.execute(f"SELECT schema_version FROM {SCHEMA_NAME}.meta".encode()).fetchone() == (1,)


async def test_version_that_no_erelong_writes_is_refused(make_database: Make) -> None:
    url = make_database()
    store = PostgresStore(url=url, durability="normal")
    await store.open()
    await store.close()
    _execute(url, f"UPDATE {SCHEMA_NAME}.meta SET schema_version = 0")

    assert "which no erelong writes" in str(await _refusal(url))


async def test_empty_database_is_refused_where_one_must_exist(make_database: Make) -> None:
    url = make_database()

    exit = await _refusal(url, must_exist=True)
    assert isinstance(exit, StoreCorrupt)
    assert "must_exist" in str(exit)

    for must_exist in (False, True):
        store = PostgresStore(url=url, durability="normal", must_exist=must_exist)
        await store.open()
        await store.close()


async def test_database_that_may_lose_commits_is_refused_unless_that_is_permitted(make_database: Make) -> None:
    url = make_database()
    assert "fsync is off" in str(await _refusal(url, durability="full"))  # as it is on the server of the tests
    _execute(url, "ALTER DATABASE trial SET synchronous_commit = off")

    exit = await _refusal(url, durability="full")

    assert isinstance(exit, PlaceRefused)
    assert "synchronous_commit is off" in str(exit)
    assert 'durability = "normal"' in str(exit)
    store = PostgresStore(url=url, durability="normal")
    await store.open()
    await store.close()


async def test_standby_that_confirms_no_commits_is_reported(
    make_database: Make, postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = make_database()
    with _standby(postgres_server):
        store = PostgresStore(url=url, durability="normal")
        await store.open()
        await store.close()

    (event,) = [record for record in caplog.records if record.msg == "standby_not_synchronous"]
    assert event.__dict__["fields"]["standbys"] == 1


async def test_standby_is_refused_and_the_primary_beside_it_found(postgres_server: PostgresServer) -> None:
    with _copy(postgres_server) as standby:
        exit = await _refusal(_url(standby, "postgres"))
        assert "name the primary" in str(exit)

        store = PostgresStore(url=f"{_url(standby, 'postgres')},{postgres_server.home}", durability="normal")
        await store.open()
        await store.close()


@pytest.mark.parametrize("mode", ["transaction", "statement", "session"])
async def test_pooler_must_give_each_client_a_session(
    mode: str, make_database: Make, postgres_server: PostgresServer
) -> None:
    make_database()
    with _pooler(postgres_server, mode) as home:
        url = _url(home, "trial") + "&port=6432"
        if mode == "session":
            store = PostgresStore(url=url, durability="normal")
            await store.open()
            await put_one(store)
            await store.close()
        else:
            exit = await _refusal(url)
            assert isinstance(exit, PlaceRefused), exit
            assert "pooler in transaction mode" in str(exit)


async def test_store_ends_when_its_tables_are_dropped(make_database: Make) -> None:
    url = make_database()
    store = PostgresStore(url=url, durability="normal")
    await store.open()
    _execute(url, f"DROP SCHEMA {SCHEMA_NAME} CASCADE")

    with pytest.raises(Exception, match="gone"):
        await put_one(store)

    exit = await store.end()
    assert isinstance(exit, StoreCorrupt)
    assert "ended" in (store.status() or "")
    await store.close()


@contextmanager
def _folder(server: PostgresServer) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="erelong-trial-"))  # the path of a socket must be short
    server.give(home)
    try:
        yield home
    finally:
        shutil.rmtree(home)


@contextmanager
def _standby(server: PostgresServer) -> Iterator[None]:
    """Stream the log of the server, as a standby does that is not synchronous."""
    with _folder(server) as home, server.running("pg_receivewal", "-D", str(home), "-d", server.url):
        with psycopg.connect(server.url, autocommit=True) as connection:
            _wait(lambda: connection.execute("SELECT FROM pg_stat_replication").fetchone() is not None)
        yield


@contextmanager
def _copy(server: PostgresServer) -> Iterator[Path]:
    """Run a standby of the server."""
    with _folder(server) as home:
        data = str(home / "data")
        server.run("pg_basebackup", "-D", data, "-d", server.url, "-R", "--checkpoint=fast", "--no-sync")
        options = ["-c", "listen_addresses=", "-c", "shared_buffers=1MB"]
        with server.running("postgres", "-D", data, "-k", str(home), *options):
            _wait(lambda: _answers(_url(home, "postgres")))
            yield home


@contextmanager
def _pooler(server: PostgresServer, mode: str) -> Iterator[Path]:
    if shutil.which("pgbouncer") is None:
        report_missing("needs PgBouncer: on Debian or Ubuntu, apt-get install pgbouncer")
    with _folder(server) as home:
        settings = home / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host={server.home} user=erelong\n"
            f"[pgbouncer]\nauth_type = any\nunix_socket_dir = {home}\nlisten_port = 6432\npool_mode = {mode}\n"
        )
        with server.running(str(shutil.which("pgbouncer")), str(settings)):
            _wait(lambda: _answers(f"{_url(home, 'postgres')}&port=6432"))
            yield home


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def _wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)
