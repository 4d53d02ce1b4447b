"""Connections to Redis that are borrowed, used and given back within a time; a pool that connects in its caller's own thread can
wait without end for a name lookup, and one that makes a connection for each caller opens as many as there are threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from time import monotonic
from typing import Any, Final

from redis.connection import AbstractConnection
from redis.exceptions import AuthenticationError, AuthorizationError, BusyLoadingError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from queue_kit.errors import ConfigurationError
from queue_kit.transport import points

#: Connections of one process at once. Each is busy for about a millisecond; more threads than this wait their turn.
MOST: Final = 32
_WRITTEN_AT_ONCE: Final = 50
#: What Redis answers, though redis-py takes it for a broken connection.
_ANSWERS: Final = (ResponseError, BusyLoadingError, AuthenticationError, AuthorizationError)


class Unreachable(Exception):
    """There is no connection: refused, or none in time. Nothing has been sent."""


class Line:
    """One connection, used by one thread at a time."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def is_usable(self) -> bool:
        """Whether nothing has come in since the last answer; its end would have."""
        try:
            return not self._connection.can_read(timeout=0)
        except Exception:  # noqa: BLE001 - whatever it says, this one is not to be used
            return False

    def ask(self, commands: Iterable[tuple[Any, ...]], until: float, answers: list[Any]) -> None:
        """Send commands and collect their answers, errors of Redis among them, until the instant ``until``.

        They are written a few at a time: Redis works on the first while the next are made. What is in ``answers`` when this
        raises has been answered.
        """
        asked, waiting = 0, iter(commands)
        while some := list(islice(waiting, _WRITTEN_AT_ONCE)):
            points.reached("send writing")
            self._write(some, until)
            asked += len(some)
        points.reached("send written")
        for _ in range(asked):
            answers.append(self._answer(until))  # noqa: PERF401 - one by one: those before an error count

    def _write(self, commands: Sequence[tuple[Any, ...]], until: float) -> None:
        connection = self._connection
        connection._sock.settimeout(_left(until))
        connection.send_packed_command([b"".join(connection.pack_commands(commands))], check_health=False)

    def _answer(self, until: float) -> Any:
        # Not the connection's own way: Sentinel's turns the answer of a former primary into a broken connection.
        self._connection._sock.settimeout(_left(until))
        try:
            return AbstractConnection.read_response(self._connection, disconnect_on_error=False)
        except _ANSWERS as answer:
            return answer

    def close(self) -> None:
        """End the connection."""
        self._connection.disconnect()


def _left(until: float) -> float:
    left = until - monotonic()
    if left <= 0:
        raise RedisTimeoutError("no time is left")
    return left


class Lines:
    """The connections of one process to one server. ``connect`` makes one that is ready, and may take as long as it likes."""

    def __init__(self, connect: Callable[[], Any], most: int = MOST) -> None:
        self._connect, self._most = connect, most
        self._changed = threading.Condition()
        self._idle: list[Line] = []
        self._count = 0  # idle, lent out, and being dialled

    @contextmanager
    def borrowed(self, until: float) -> Iterator[Line]:
        """Lend a connection; one that its borrower leaves with an error is closed, since an answer may still be under way.

        :raises Unreachable: none could be made until the instant ``until``.
        :raises ConfigurationError: the server cannot do what is asked of it.
        """
        line = self._borrow(until)
        try:
            yield line
        except BaseException:
            line.close()
            self._gone()
            raise
        self._give_back(line)

    def forget(self) -> None:
        """Close what is idle: the server that it led to has gone, or is no primary any more."""
        with self._changed:
            idle, self._idle = self._idle, []
            self._count -= len(idle)
            self._changed.notify_all()
        for line in idle:
            line.close()

    def _borrow(self, until: float) -> Line:
        while True:
            line = self._idle_or_slot(until)
            if line is None:
                return _Dialling(self).wait(until)
            if line.is_usable:
                return line
            line.close()
            self._gone()

    def _idle_or_slot(self, until: float) -> Line | None:
        """An idle connection, or ``None`` with the right to make one."""
        with self._changed:
            while not self._idle and self._count >= self._most:
                left = until - monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise Unreachable(f"none of {self._most} connections came free in time")
            if self._idle:
                return self._idle.pop()
            self._count += 1
            return None

    def _give_back(self, line: Line) -> None:
        with self._changed:
            self._idle.append(line)
            self._changed.notify()

    def _gone(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify()


class _Dialling:
    """A connection being made, on a thread of its own: looking up a name cannot be interrupted, only left behind."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._done = threading.Event()
        self._line: Line | None = None
        self._error: Exception | None = None
        self._awaited = True
        try:
            threading.Thread(target=self._run, daemon=True, name="queue_kit-dial").start()
        except RuntimeError:  # this process is ending, or has no more threads
            self._run()

    def wait(self, until: float) -> Line:
        """The connection, as soon as it is made. One that is made later is kept for others."""
        self._done.wait(max(0.0, until - monotonic()))
        with self._lines._changed:
            self._awaited = False
        if self._line is not None:
            return self._line
        if isinstance(self._error, ConfigurationError):
            raise self._error
        if self._error is not None:
            raise Unreachable(str(self._error)) from self._error
        raise Unreachable("no connection was made in time")

    def _run(self) -> None:
        try:
            line = Line(self._lines._connect())
        except Exception as error:  # noqa: BLE001 - it is the waiting thread's
            self._error = error
            self._lines._gone()
        else:
            with self._lines._changed:
                awaited = self._awaited
                if awaited:
                    self._line = line
            if not awaited:
                self._lines._give_back(line)
        self._done.set()
