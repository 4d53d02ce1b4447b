"""Outlives its worker: waits until that and the last child of its pool are gone, and gives their jobs back at once; without it
they would wait for their leases to run out.

A program of its own, ``python -I -S warden.py <file>``, with nothing but the standard library and little of that, so that it
stays small. Its orders come by standard input: where the servers are, and the very bytes to send them, which `store` has made.
It sleeps in the kernel until the lock on the worker's file comes free, which is when every process that has it open is gone.
Where deaths are inferred it listens meanwhile, beside its worker: that could not come back, once its connections are cut, while
a task of its holds the interpreter.
"""

from __future__ import annotations

import _thread
import fcntl
import json
import os
import signal
import sys
import time
from typing import Any

#: Meant for the worker, and sent to whatever runs beside it: by a terminal, by systemd, by `kill -- -pgid`.
_NOT_FOR_US = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGTSTP", "SIGUSR1", "SIGUSR2")
_PAUSE_S = 0.2


def main(file: str) -> None:
    """Let go of whoever started this, wait, and act if the worker has not left in order."""
    for name in _NOT_FOR_US:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    os.setsid()
    orders = json.loads(sys.stdin.buffer.read())
    watched = os.open(file, os.O_RDONLY)
    os.chdir("/")
    if os.fork():
        os._exit(0)  # the worker waits for this, and has no child that it would have to look after
    if orders["listen"]:
        for server in orders["servers"]:
            _thread.start_new_thread(_listen, (server, orders))
    fcntl.flock(watched, fcntl.LOCK_SH)
    if os.fstat(watched).st_size == 0:  # who leaves in order writes so into it
        _give_back(orders)
        _remove(file)


def _listen(server: dict[str, Any], orders: dict[str, Any]) -> None:
    while True:
        try:
            with _dialled(_primary(server, orders["timeout_s"]), orders["timeout_s"]) as line, line.makefile("rwb") as link:
                _first_line(link, server["hello"], orders["listen"])
                line.settimeout(None)
                while link.readline():  # nobody speaks there
                    pass
        except (OSError, ValueError):  # as below
            pass
        time.sleep(_PAUSE_S)


def _give_back(orders: dict[str, Any]) -> None:
    servers, until, given = orders["servers"], time.monotonic() + orders["patience_s"], list[list[str]]()
    while servers and time.monotonic() < until:
        left = []
        for server in servers:
            try:
                _abandon(server, orders, given)
            except (OSError, ValueError):  # down, loading, a replica, whatever it is: it may pass, and the lease is there
                left.append(server)
        servers = left
        if servers:
            time.sleep(_PAUSE_S)
    if given:
        _tell(given, orders)


def _abandon(server: dict[str, Any], orders: dict[str, Any], given: list[list[str]]) -> None:
    count = orders["batch"]
    while count == orders["batch"]:
        with _connected(_primary(server, orders["timeout_s"]), orders["timeout_s"]) as link:
            count = int(_first_line(link, server["hello"], orders["abandon"])[1:])
            given += ([_text(link) for _ in range(int(link.readline()[1:]))] for _ in range(count))


def _text(link: Any) -> str:
    text: bytes = link.read(int(link.readline()[1:]) + 2)[:-2]
    return text.decode("utf-8", "replace")


def _tell(given: list[list[str]], orders: dict[str, Any]) -> None:
    """A line for each job, as `queue_kit.observe.transitions` has it, then one for all; as JSON if the worker logs so."""
    lines = []
    for job_id, queue, outcome, worker, _, name, correlation_id, attempt in given:
        begun = outcome != "released"
        moved = {"from": "active" if begun else "waiting", "to": outcome if begun else "waiting", "cause": "its worker is lost"}
        whose = {"queue": queue, "job_id": job_id, "job_name": name, "correlation_id": correlation_id, "attempt": int(attempt)}
        words = f"job {job_id} of queue {queue} stalled: its worker {worker} is lost; now {outcome}"
        lines.append((words, {"transition": "stalled" if begun else "released", **moved, **whose}))
    lines.append((f"worker {orders['worker']} is gone; {len(given)} jobs of its given back", {}))
    what = {"logger": "queue_kit.warden", "level": "warning", "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    for words, fields in lines:
        line = json.dumps({"event": words, **what, **fields}) if orders["json"] else f"queue_kit: {words}"
        sys.stderr.write(line + "\n")


def _primary(server: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    for sentinel in server.get("sentinels", ()):
        try:
            with _connected(sentinel, timeout_s) as link:
                if _first_line(link, sentinel["hello"], server["question"]) == b"*2":
                    _, host, _, port = (link.readline().strip().decode() for _ in range(4))
                    return {**server, "host": host, "port": int(port)}
        except (OSError, ValueError):
            continue
    if "sentinels" in server:
        raise OSError("no Sentinel knows the primary")
    return server


def _first_line(link: Any, hello: list[str], command: str) -> bytes:
    """Say hello, then the command; the first line of its answer."""
    link.write("".join([*hello, command]).encode("latin-1"))
    link.flush()
    for _ in hello:
        if link.readline() != b"+OK\r\n":
            raise ValueError("not admitted")
    line: bytes = link.readline()
    if not line.startswith(b"*"):  # an error, or nothing: the connection was cut
        raise ValueError("refused")
    return line.strip()


def _connected(address: dict[str, Any], timeout_s: float) -> Any:
    with _dialled(address, timeout_s) as line:  # the file keeps it open
        return line.makefile("rwb")


def _dialled(address: dict[str, Any], timeout_s: float) -> Any:
    import socket  # noqa: PLC0415

    if address["path"]:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(timeout_s)
        link.connect(address["path"])
    else:
        link = socket.create_connection((address["host"], address["port"]), timeout_s)
    if address["tls"]:
        link = _secured(link, address["host"], address["tls"])
    return link


def _secured(link: Any, host: str, tls: dict[str, Any]) -> Any:
    import ssl  # noqa: PLC0415

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = tls["check_hostname"], ssl.VerifyMode(tls["verify"])
    if tls["certfile"] or tls["keyfile"]:
        context.load_cert_chain(tls["certfile"], tls["keyfile"], tls["certificate_password"])
    if tls["ca_certs"] or tls["ca_path"] or tls["ca_data"]:
        context.load_verify_locations(tls["ca_certs"], tls["ca_path"], tls["ca_data"])
    if tls["least"]:
        context.minimum_version = ssl.TLSVersion(tls["least"])
    if tls["ssl_ciphers"]:
        context.set_ciphers(tls["ssl_ciphers"])
    return context.wrap_socket(link, server_hostname=host)


def _remove(file: str) -> None:
    try:
        os.unlink(file)  # noqa: PTH108 - pathlib is large
    except OSError:
        return  # another was quicker


if __name__ == "__main__":
    main(sys.argv[1])
