"""Runs one job where the pool runs it, in a child or a thread; without it a pool would lose what leaves a task by another
door than an Exception.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MethodType
from typing import Any, NamedTuple

from billiard.einfo import ExceptionInfo
from billiard.pool import terminate_handler_fired
from celery import current_app
from celery._state import get_current_worker_task
from celery.app.trace import fast_trace_task, trace_task_ret
from celery.exceptions import Ignore, WorkerShutdown, WorkerTerminate
from celery.utils.log import get_logger

from queue_kit.errors import JobExit
from queue_kit.observe.correlation import running_job
from queue_kit.rules.outcome import Cancel, Failure, Release
from queue_kit.transport import points
from queue_kit.transport.envelope import PROPERTY, correlation_of
from queue_kit.transport.kit import Kit, Run
from queue_kit.transport.stops import Stop
from queue_kit.worker.running.deadline import watch
from queue_kit.worker.running.failure import failure_of
from queue_kit.worker.running.lineage import attend_canvas, name_replacement, naming
from queue_kit.worker.running.lost import LeaseLost, make_sure
from queue_kit.worker.running.run import govern
from queue_kit.worker.running.task import adopt
from queue_kit.worker.running.tracing import hear_failures

logger = get_logger(__name__)


class Report(NamedTuple):
    """What the pool tells the worker's main process of a run, beside Celery's own outcome.

    A tuple, since each run sends one from child to parent: a frozen dataclass is pickled by Python code, field by field.
    """

    failure: Failure | None = None
    replaced: bool = False
    moved: bool = False
    unsent: Any = None
    stored: bool = True
    ending: Release | Cancel | None = None
    exhausted: bool = False


def trace_job(name: str, uuid: str, request: dict[str, Any], *args: Any, **kwargs: Any) -> tuple[Any, Any, Any, Report]:
    """Run a job in the pool; like Celery's own target, with a :class:`Report` behind its outcome. Raises nothing."""
    try:
        return _trace(name, uuid, request, *args, **kwargs)
    except Exception as error:  # a pool of threads would keep it to itself, and the job for ever
        logger.exception("job %s[%s] could not be run", name, uuid)
        return 1, _pickleable(error), 0.0, Report(_escaped(error), stored=False)


def _trace(name: str, uuid: str, request: dict[str, Any], *args: Any, **kwargs: Any) -> tuple[Any, Any, Any, Report]:
    app = current_app._get_current_object()
    run = _run_of(uuid, request, app.queue_kit)
    running = app.queue_kit.running
    running[uuid] = run
    watch(run)
    shown = running_job.set(partial(_fields, request))
    trace = fast_trace_task if app.use_fast_trace_task else trace_task_ret
    try:
        failed, retval, runtime = trace(name, uuid, request, *args, **kwargs)
    except (WorkerShutdown, WorkerTerminate):
        raise
    except BaseException as error:
        if _is_the_pools_own(error):
            raise
        return 1, _pickleable(error), 0.0, Report(_escaped(error), run.replaced, run.moved, run.unsent, stored=False)
    finally:
        watch(None)
        running_job.reset(shown)
        if running.get(uuid) is run:
            del running[uuid]
    points.reached("report returning")
    failure = failure_of(retval.exception, retval.traceback) if failed else None
    return failed, retval, runtime, Report(
        failure, run.replaced, run.moved, run.unsent, ending=run.ending, exhausted=run.exhausted
    )


def _is_the_pools_own(error: BaseException) -> bool:
    """A kill, not an outcome: billiard's answer to SIGTERM, gevent's time limit or kill of a greenlet."""
    if isinstance(error, SystemExit) and terminate_handler_fired():
        return True
    return type(error).__module__.partition(".")[0] in ("gevent", "greenlet")


def _run_of(job_id: str, request: Mapping[str, Any], kit: Kit) -> Run:
    facts = (request.get("properties") or {}).get(PROPERTY) or {}
    stop = Stop(kit.held.stops if kit.held else None, facts.get("slot"), facts.get("timeout_ms"))
    return Run(job_id, facts.get("token", ""), facts, stop, request.get("replaced_task_nesting") or 0)


def _fields(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """What each line of the log says that is written in this run."""
    facts, job_id = (request.get("properties") or {}).get(PROPERTY) or {}, request.get("id")
    return {
        "queue": facts.get("queue"), "job_id": job_id, "job_name": request.get("task"),
        "correlation_id": correlation_of(request) or job_id, "attempt": facts.get("attempts_started"),
    }  # fmt: skip


def _escaped(error: BaseException) -> Failure:
    named = JobExit(f"sys.exit({error.code!r})") if isinstance(error, SystemExit) else error
    return failure_of(named, ExceptionInfo().traceback)


def _pickleable(error: BaseException) -> ExceptionInfo:
    """What left the task, as an exception that the main process can take as a failure of this task, never as its own end."""
    try:
        raise JobExit(f"{type(error).__name__}: {error}") from None
    except JobExit:
        return ExceptionInfo()


def prepare_task(task: Any) -> None:
    """Give a task what every run of a job needs, whatever its base class. Safe to call twice."""
    if getattr(task, "_queue_kit_ready", False):
        return
    kit: Kit = task.app.queue_kit
    attend_canvas()
    hear_failures()
    kit.current_id = _current_id
    adopt(task)
    govern(task, kit)
    task.replace = MethodType(_replacing(type(task).replace, kit), task)
    task._queue_kit_ready = True


def _current_id() -> str | None:
    task = get_current_worker_task()
    return None if task is None else task.request.id


def _replacing(replace: Callable[..., Any], kit: Kit) -> Callable[..., Any]:
    """The task's ``replace``, with ids that are the same in every run and a note for the main process."""

    def replacing(task: Any, signature: Any) -> Any:
        run = kit.running.get(task.request.id)
        if run is None:
            return replace(task, signature)
        replays, collect = run.facts.get("replays", 0), task.app.tasks["celery.accumulate"].s(index=0)
        make_sure(run, kit)  # the tasks of a canvas bear ids of their own, so no token refuses them
        named = name_replacement(signature, run.id, run.nesting, replays, collect)
        try:
            with naming(run.id, f"replace/{run.nesting}/{replays}"):
                return replace(task, named)
        except Ignore:
            if run.lost:
                raise LeaseLost(f"the lease of {run.id} is lost") from None
            run.replaced = not run.moved
            raise

    return replacing
