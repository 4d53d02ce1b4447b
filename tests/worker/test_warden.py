"""A real warden, told of the death of a worker that this process plays: how it reaches Redis, and what it does when it cannot."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from queue_kit.worker.roles.roster import orders_of_warden
from queue_kit.worker.roles.witness import Witness, is_dead, remove
from tests.apps import traps_app
from tests.store.desk import Desk
from tests.support.fixtures import OwnRedis
from tests.support.ports import LOOPBACK, free_port
from tests.support.processes import is_alive
from tests.support.redis_server import RedisServer
from tests.support.sentinel import NAME, Sentinel
from tests.support.tls import make_certificates
from tests.support.waiting import stays_true, wait_until
from tests.support.witnesses import wardens

pytestmark = pytest.mark.crash

NONCE = "host:1:0123456789abcdef"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files lie: none is another test's."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def witness() -> Iterator[Witness]:
    """The file of a worker that lives until it lets go."""
    made = Witness(NONCE)
    made.begin()
    yield made
    made.leave()


def dies(witness: Witness, url: str | list[str], client: redis.Redis, between: Any = lambda: None, **settings: Any) -> Desk:
    """A worker on this server runs a job, has a warden, and is gone."""
    desk = Desk(client, "q")
    desk.add()
    desk.begin(worker=NONCE)
    app = traps_app.make(url, **settings)
    witness.post_warden(partial(orders_of_warden, app, NONCE))
    between()
    witness.let_go()
    return desk


def assert_given_back(desk: Desk) -> None:
    wait_until(lambda: desk.trace() == "added waiting active waiting stalled", says="the job is given back", within_s=15)
    assert desk.counters() == (0, 1, 1)
    desk.client.flushall()


def test_with_a_user_a_password_and_a_database(own_redis: OwnRedis, witness: Witness) -> None:
    """The user has no more rights than a worker needs."""
    server = own_redis()
    with server.client(db=3) as client:
        client.acl_setuser("shop", enabled=True, passwords=["+p:ss"], keys=["qwk:*"], commands=["+@all", "-@dangerous"])
        assert_given_back(dies(witness, f"redis://shop:p%3Ass@{LOOPBACK}:{server.port}/3", client))


def test_by_a_unix_socket(own_redis: OwnRedis, witness: Witness, folder: Path) -> None:
    path = folder / "r.sock"
    server = own_redis(options={"unixsocket": str(path)})
    with server.client(db=2) as client:
        assert_given_back(dies(witness, f"redis+socket://{path}?virtual_host=2", client))


def test_by_tls_and_only_where_the_certificate_holds(own_redis: OwnRedis, folder: Path, witness: Witness) -> None:
    made, port = make_certificates(folder), free_port()
    files = {"cert-file": made.certificate, "key-file": made.key, "ca-cert-file": made.authority}
    options = {"tls-port": str(port), "tls-auth-clients": "no", **{f"tls-{name}": str(file) for name, file in files.items()}}
    server = own_redis(options=options)
    with server.client() as client:
        url = f"rediss://{LOOPBACK}:{port}/0?ssl_cert_reqs=required&ssl_ca_certs="
        assert_given_back(dies(witness, f"{url}{made.authority}", client))
        stranger = Witness(NONCE)
        stranger.begin()
        (folder / "other").mkdir()
        other = make_certificates(folder / "other").authority
        desk = dies(stranger, f"{url}{other}", client)
        stays_true(lambda: desk.state() == "active", says="it says nothing to a server it cannot trust", for_s=1.0)
        client.flushall()


def test_by_sentinels_to_whichever_is_primary_at_the_death(own_redis: OwnRedis, witness: Witness) -> None:
    """The first of the two Sentinels named is not there."""
    primary = own_redis(options={"repl-diskless-sync-delay": "0"})
    replica = own_redis(options={"replicaof": f"{LOOPBACK} {primary.port}"})
    primary.wait_for_replica()
    sentinel = Sentinel(primary).start()
    wait_until(sentinel.knows_replicas, says="the replica is known", within_s=20)
    urls = f"sentinel://{LOOPBACK}:{free_port()};{sentinel.url}"

    def fail_over() -> None:
        with replica.client() as client:
            wait_until(lambda: client.hget("qwk:job:job", "state") == "active", says="the replica has the job")
            primary.kill()
            wait_until(lambda: client.info()["role"] == "master", says="the replica is the primary now", within_s=20)

    with primary.client() as first, replica.client() as second:
        desk = dies(witness, urls, first, fail_over, broker_transport_options={"master_name": NAME})
        desk.client = second
        assert_given_back(desk)
    sentinel.close()


def test_of_several_servers_on_each(own_redis: OwnRedis, witness: Witness) -> None:
    """A worker may have gone from one to the other, and holds jobs on both; one may be down, and comes back."""
    first, second = own_redis(), own_redis()
    with first.client() as one, second.client() as other:
        elsewhere = Desk(other, "q")
        elsewhere.add()
        elsewhere.begin(worker=NONCE)
        desk = dies(witness, [first.url(), second.url()], one)
        assert_given_back(desk)
        assert_given_back(elsewhere)


def test_a_server_that_is_away_is_waited_for(own_redis: OwnRedis, witness: Witness) -> None:
    server = own_redis(appendonly=True)
    desk = dies(witness, server.url(), server.client(), server.kill)
    server.restart()
    desk.client = server.client()
    assert_given_back(desk)


def test_more_jobs_than_a_script_takes_at_once(redis_server: RedisServer, witness: Witness) -> None:
    desk = Desk(redis_server.client(), "q")
    desk.add_all(*(f"j{number}" for number in range(250)))
    assert len(desk.claim(250, worker=NONCE).jobs) == 250
    dies(witness, redis_server.url(), desk.client)
    wait_until(lambda: len(desk.listed("wait")) == 251, says="all wait again")


# -- what can be seen ----------------------------------------------------------------------------------------------------


def test_a_forked_process_holds_the_lock_and_one_that_was_executed_does_not(witness: Witness) -> None:
    place = witness.place
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.read(read_end, 1)
        os._exit(0)
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    witness.let_go()
    assert not is_dead(place)
    os.write(write_end, b"x")
    os.waitpid(child, 0)
    assert is_dead(place)
    sleeper.kill()
    sleeper.wait()
    remove(place)


def test_what_cannot_be_seen_is_not_dead(witness: Witness, folder: Path) -> None:
    """Another mount's folder, a copy in a container made from a living one's image, a pipe in its place, whatever
    file somebody has named in Redis."""
    inode = witness.place.partition(" ")[0]
    copy, pipe, other = folder / "queue_kit-copy.lock", folder / "queue_kit-pipe.lock", folder / "other"
    copy.touch()
    other.touch()
    os.mkfifo(pipe)
    assert not is_dead(f"{inode} {folder / 'queue_kit-nowhere.lock'}")
    assert not is_dead(f"{inode} {copy}")
    assert not is_dead(f"{pipe.stat().st_ino + 1} {pipe}")
    assert not is_dead(f"{other.stat().st_ino} {other}")
    assert is_dead(f"{copy.stat().st_ino} {copy}")
    assert not is_dead("")
    assert not is_dead(witness.place)


def test_where_locks_are_no_locks_nobody_is_taken_for_dead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system of a network, which may grant a lock to two at once."""
    monkeypatch.setattr(fcntl, "flock", lambda fd, how: None)
    witness = Witness(NONCE)
    witness.begin()
    assert witness.place == ""


def test_a_folder_that_cannot_be_written_costs_no_more_than_the_warden(
    monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    witness = Witness(NONCE)
    witness.begin()
    witness.post_warden(partial(orders_of_warden, traps_app.make(redis_server.url()), NONCE))
    assert witness.place == ""
    witness.keep()
    witness.leave()


def test_files_that_nobody_has_seen_to_are_tidied_away_by_a_later_worker(folder: Path) -> None:
    for name in ("old", "held", "fresh"):
        (folder / f"queue_kit-{name}.lock").touch()
    held = (folder / "queue_kit-held.lock").open()
    fcntl.flock(held, fcntl.LOCK_EX)
    for name in ("old", "held"):
        os.utime(folder / f"queue_kit-{name}.lock", (1, 1))
    witness = Witness(NONCE)
    witness.begin()
    assert sorted(path.name[10:-5] for path in folder.glob("queue_kit-*")) == ["0123456789abcdef", "fresh", "held"]
    witness.leave()
    held.close()


def test_nothing_secret_stands_where_others_can_read_it(redis_server: RedisServer, witness: Witness) -> None:
    """Neither in the command line, nor in the file, which is its owner's alone."""
    url = f"redis://:hunter2@{LOOPBACK}:{redis_server.port}/0"
    witness.post_warden(partial(orders_of_warden, traps_app.make(url), NONCE))
    path = Path(witness.place.partition(" ")[2])
    (warden,) = wardens(path)
    assert "hunter2" not in " ".join(warden.cmdline())
    assert (path.stat().st_mode & 0o777, path.read_bytes()) == (0o600, b"")
    witness.leave()
    wait_until(lambda: not is_alive(warden.pid), says="the warden ends")
