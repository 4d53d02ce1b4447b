"""The commands for dead letters: what they list, show, replay, discard and export, and how each ends for a script."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from deploy import celery_app
from queue_kit import dead_letters
from queue_kit.django.management.letters import printable
from queue_kit.django.management.progress import Progress
from queue_kit.store.dead_letters import DeadLetters
from tests.store.desk import Desk
from tests.store.test_letters import buried, sent
from tests.store.test_replay import failed
from tests.support.processes import ROOT, environment_with_project
from tests.support.redis_server import RedisServer
from tests.support.waiting import Stopwatch

Run = Callable[..., str]


@pytest.fixture
def desk(queue: RedisServer, queue_name: str) -> Desk:
    """The site's own Redis; one queue there."""
    return Desk(queue.client(), queue_name)


@pytest.fixture
def letters(desk: Desk) -> DeadLetters:
    return dead_letters(celery_app)


@pytest.fixture
def five(desk: Desk) -> None:
    """Dead letters a to e, at 10 to 50 s of 1970."""
    buried(desk, "a", 10_000, error_class="KeyError", reason="password=hunter2")
    buried(desk, "b", 20_000, name="mail", message=sent(to="ada", token="t-1234"), stack="line\nt-1234")
    buried(desk, "c", 30_000, cause="stalled", reason="Disk full\nand more")
    buried(desk, "d", 40_000, correlation_id="c-9", replayed_at=45_000, replayed_by="ada")
    buried(desk, "e", 50_000, queue="other")


def run(name: str, *args: str) -> str:
    """Run a command in this process; return what it prints."""
    out = io.StringIO()
    call_command(name, *args, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def ends(name: str, *args: str) -> tuple[int, str]:
    """The exit status and the last words of a command that does not end well."""
    with pytest.raises(CommandError) as caught:
        run(name, *args)
    return caught.value.returncode, str(caught.value)


def manage(*args: str, url: str, timeout: float = 60, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `manage.py` as a shell does."""
    env = environment_with_project({"REDIS_URL": url, "DJANGO_SETTINGS_MODULE": "deploy.settings"})
    command = [sys.executable, str(ROOT / "manage.py"), *args]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False, **options
    )


# -- list, show --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("five")
def test_the_list_shows_the_newest_first_in_columns(desk: Desk) -> None:
    lines = run("dlq_list").splitlines()
    assert lines[0].split() == ["FAILED", "AT", "ID", "TASK", "CAUSE", "ATTEMPTS", "REPLAYED", "REASON"]
    assert [line.split()[2] for line in lines[1:6]] == [
        "dlq-other-e-1", *(f"dlq-{desk.queue}-{job}-1" for job in "dcba"),
    ]  # fmt: skip
    assert lines[3].endswith("Disk full")
    assert lines[5].endswith("password=[redacted]")
    assert lines[6] == "5 of 5 dead letters"


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize(
    ("args", "jobs"),
    [
        (["--queue", "other"], "e"), (["--task", "mail"], "b"), (["--cause", "stalled"], "c"),
        (["--error", "KeyError"], "a"), (["--search", "C-9"], "d"), (["--replayed", "yes"], "d"),
        (["--replayed", "no", "--cause", "exhausted"], "eba"), (["--since", "1970-01-01T00:00:40"], "ed"),
        (["--until", "1970-01-01T00:00:20+00:00"], "a"), (["--since", "1d"], ""), (["--until", "2h"], "edcba"),
        (["--limit", "2", "--offset", "1"], "dc"),
    ],
)  # fmt: skip
def test_filters_choose(args: list[str], jobs: str) -> None:
    document = json.loads(run("dlq_list", "--json", *args))
    assert "".join(letter["job_id"] for letter in document["letters"]) == jobs


@pytest.mark.usefixtures("five")
def test_counts(desk: Desk) -> None:
    counts = json.loads(run("dlq_list", "--counts", "--json"))
    assert counts["cause"] == {"exhausted": 4, "stalled": 1}
    assert "cause        4       exhausted" in run("dlq_list", "--counts")


def test_an_empty_list_is_no_error(desk: Desk) -> None:
    assert run("dlq_list") == "0 of 0 dead letters\n"


@pytest.mark.usefixtures("five")
def test_one_is_shown_whole_and_redacted(desk: Desk) -> None:
    shown = run("dlq_show", f"dlq-{desk.queue}-b-1")
    assert "Task           mail\n" in shown
    assert "Failed         1970-01-01 00:00:20+00:00\n" in shown
    assert '{\n  "kwargs": {\n    "to": "ada",\n    "token": "[redacted]"\n  }\n}' in shown
    assert "Stack\nline\n[redacted]\n" in shown
    assert json.loads(run("dlq_show", "--json", f"dlq-{desk.queue}-b-1"))["payload"]["kwargs"]["to"] == "ada"


def test_what_an_error_quotes_can_do_nothing_to_a_terminal(desk: Desk) -> None:
    letter = buried(desk, "a", 10, reason="\x1b[2Jgone \x07", message="\x1b]0;title\x07", stack="a\n\x1b[31mb")
    for shown in (run("dlq_show", letter), run("dlq_list"), run("dlq_list", "--json")):
        assert not {"\x1b", "\x07"} & set(shown)
    assert printable("\x1b[1m é\n", keep="\n") == "\\x1b[1m é\n"


# -- replay ------------------------------------------------------------------------------------------------------------


def test_one_is_replayed_and_says_by_whom(desk: Desk, letters: DeadLetters) -> None:
    """I7: the second time it is refused."""
    letter = failed(desk)
    assert run("dlq_replay", letter, "--by", "ada") == "1 replayed\n"
    assert (desk.state(), letters.get(letter).replayed_by) == ("waiting", "ada")
    assert ends("dlq_replay", letter) == (1, "1 of 1 left as they are")


def test_without_a_name_the_user_of_this_machine_asks(desk: Desk, letters: DeadLetters) -> None:
    letter = failed(desk)
    run("dlq_replay", letter)
    assert letters.get(letter).replayed_by.endswith("command)")


def test_by_filter_those_not_replayed_before_the_oldest_first(desk: Desk, letters: DeadLetters) -> None:
    """I7."""
    ids = [failed(desk, f"job-{n}") for n in range(4)]
    letters.replay(ids[1], "ada")
    desk.claim()
    assert run("dlq_replay", "--queue", desk.queue, "--yes") == "3 replayed\n"
    assert desk.listed("wait") == ["job-0", "job-2", "job-3"]


def test_a_dry_run_changes_nothing(desk: Desk, letters: DeadLetters) -> None:
    failed(desk)
    document = json.loads(run("dlq_replay", "--all", "--dry-run", "--json"))
    assert document == {"replayed": letters.ids(), "refused": {}, "dry_run": True}
    assert run("dlq_replay", "--all", "--dry-run") == "1 would be replayed\n"
    assert desk.state() == "failed"


def test_a_rate_is_kept(desk: Desk) -> None:
    """I7."""
    for n in range(4):
        failed(desk, f"job-{n}")
    watch = Stopwatch()
    run("dlq_replay", "--all", "--yes", "--rate", "10")
    assert watch.elapsed_ms >= 295


def test_of_several_those_that_can_be_are_replayed_and_the_rest_is_named(desk: Desk, letters: DeadLetters) -> None:
    good, live = failed(desk, "good"), failed(desk, "live")
    letters.replay_job("live", "ada")
    desk.client.hdel(desk.keys.dead_letter(live), "replayed_at")
    err, out = io.StringIO(), io.StringIO()
    with pytest.raises(CommandError, match="2 of 3 left as they are") as caught:
        call_command("dlq_replay", good, live, "dlq-x-1", stdout=out, stderr=err)
    assert (caught.value.returncode, out.getvalue()) == (1, "1 replayed\n")
    assert "job live is waiting" in err.getvalue()
    assert "there is no dead letter dlq-x-1" in err.getvalue()


# -- discard, export ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("five")
def test_discard_deletes_those_meant(desk: Desk, letters: DeadLetters) -> None:
    assert run("dlq_discard", "--cause", "stalled", "--dry-run") == "1 would be discarded\n"
    assert len(letters.ids()) == 5
    assert run("dlq_discard", "--cause", "stalled", "--yes") == "1 discarded\n"
    assert run("dlq_discard", "dlq-other-e-1", "--yes") == "1 discarded\n"
    assert [letter.job_id for letter in letters.each()] == ["d", "b", "a"]


@pytest.mark.usefixtures("five")
def test_export_writes_lines_of_json_without_secrets(desk: Desk, tmp_path: Path) -> None:
    lines = run("dlq_export", "--task", "work", "--queue", desk.queue).splitlines()
    assert [json.loads(line)["job_id"] for line in lines] == ["d", "c", "a"]
    file = tmp_path / "letters.jsonl"
    assert run("dlq_export", "--output", str(file)) == ""
    assert "hunter2" not in file.read_text()
    assert len(file.read_text().splitlines()) == 5
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.usefixtures("five")
def test_an_export_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    assert ends("dlq_export", "--output", str(tmp_path / "no" / "file"))[0] == 1


@pytest.mark.usefixtures("five")
def test_one_of_a_later_version_is_named_by_every_command(desk: Desk) -> None:
    letter = buried(desk, "z", 60_000, version=3)
    says = f"dead letter {letter} was written by a later version"
    assert [ends(command, letter)[0] for command in ("dlq_show", "dlq_replay")] == [1, 1]
    assert says in ends("dlq_show", letter)[1]
    assert "a later version of queue_kit has written" in run("dlq_list")
    assert ends("dlq_export")[1].startswith("1 of 6 were written by a later version")


# -- how they end ------------------------------------------------------------------------------------------------------

NOBODY = [["dlq_show", "dlq-x-1"], ["dlq_replay", "dlq-x-1"], ["dlq_discard", "dlq-x-1", "--yes"],
          ["dlq_replay", "--queue", "nowhere", "--yes"], ["dlq_export", "--task", "nothing"]]  # fmt: skip
USAGE = [
    (["dlq_replay"], "name dead letters by id, or choose by filter, or say --all"),
    (["dlq_replay", "dlq-x-1", "--all"], "name dead letters by id, or"),
    (["dlq_discard", "dlq-x-1", "--queue", "q"], "name dead letters by id, or"),
    (["dlq_replay", "--all"], "Replay 4 dead letters? Nobody is there to ask: add --yes"),
    (["dlq_discard", "dlq-other-e-1"], "Discard 1 dead letters for good? Nobody is there to ask"),
    (["dlq_replay", "--all", "--yes", "--rate", "0"], "rate: a number above 0 is needed"),
    (["dlq_list", "--limit", "0"], "limit: 1 or more"),
    (["dlq_list", "--since", "1h", "--until", "2h"], "since: a time before until"),
]


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize("command", NOBODY, ids=" ".join)
def test_where_no_dead_letter_is_meant_the_status_is_3(command: list[str]) -> None:
    assert ends(*command)[0] == 3


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize(("command", "says"), USAGE, ids=[" ".join(command) for command, _ in USAGE])
def test_what_is_wrongly_asked_ends_with_status_2(
    command: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, words = ends(*command)
    assert (code, says in words) == (2, True)


@pytest.mark.parametrize("args", [["--since", "yesterday"], ["--cause", "nothing"], ["--replayed", "maybe"]])
def test_an_option_that_cannot_be_read_is_refused(args: list[str]) -> None:
    with pytest.raises(CommandError, match="argument --"):
        run("dlq_list", *args)


def test_with_redis_away_the_status_is_4(queue_down: None) -> None:
    watch = Stopwatch()
    assert ends("dlq_list")[0] == 4
    assert watch.elapsed_s < 2.5


def test_the_setting_names_the_app(desk: Desk, settings: Any) -> None:
    failed(desk)
    settings.QUEUE_KIT = {"CELERY_APP": "deploy.celery.app"}
    assert "1 of 1" in run("dlq_list")
    settings.QUEUE_KIT = {"CELERY_APP": "deploy.celery.nothing"}
    code, words = ends("dlq_list")
    assert (code, words.partition(": Module")[0]) == (1, "CELERY_APP: deploy.celery.nothing cannot be imported")


def test_in_a_shell_status_and_streams_are_apart(desk: Desk, queue: RedisServer) -> None:
    """The document goes to standard output, everything else to standard error; `--help` tells the statuses."""
    failed(desk)
    listed = manage("dlq_list", "--json", url=queue.url())
    assert (listed.returncode, json.loads(listed.stdout)["total"], listed.stderr) == (0, 1, "")
    asked = manage("dlq_replay", "--all", url=queue.url())
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "add --yes" in asked.stderr
    assert "Exit status: 0 done; 1 some" in " ".join(manage("dlq_replay", "--help", url=queue.url()).stdout.split())


def test_a_reader_that_has_seen_enough_is_no_error(desk: Desk, queue: RedisServer) -> None:
    for n in range(400):
        buried(desk, str(n), n + 1, stack="x" * 1_000)
    env = environment_with_project({"REDIS_URL": queue.url(), "DJANGO_SETTINGS_MODULE": "deploy.settings"})
    line = f"{sys.executable} {ROOT / 'manage.py'} dlq_export | head -n 1"
    done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert (json.loads(done.stdout)["job_id"], done.stderr) == ("399", "")


def test_on_a_terminal_it_asks_and_draws_a_bar(desk: Desk, queue: RedisServer) -> None:
    for n in range(3):
        failed(desk, f"job-{n}")
    assert "nothing was changed" in typed("n\n", "dlq_replay", "--all", url=queue.url())
    assert desk.listed("wait") == []
    shown = typed("y\n", "dlq_replay", "--all", "--rate", "20", url=queue.url())
    assert "Replay 3 dead letters? [y/N]" in shown
    assert "replaying [##############################] 3 of 3" in shown
    assert len(desk.listed("wait")) == 3


def typed(answer: str, *args: str, url: str) -> str:
    """Run a command on a terminal of its own, with this typed ahead; return all that the terminal shows."""
    ours, theirs = pty.openpty()
    env = environment_with_project({"REDIS_URL": url, "DJANGO_SETTINGS_MODULE": "deploy.settings", "TERM": "dumb"})
    command = [sys.executable, str(ROOT / "manage.py"), *args]
    process = subprocess.Popen(command, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, answer.encode())
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # the terminal's other end is closed
        pass
    process.wait(30)
    os.close(ours)
    return shown.decode()


def test_progress_in_a_log_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_kit.django.management.progress._LINE_S", 0)
    stream = Lines()
    with Progress(stream, "replaying", 2) as progress:
        progress.advance()
        progress.advance()
    assert stream.getvalue() == "replaying 1 of 2\nreplaying 2 of 2\n"


class Lines(io.StringIO):
    def write(self, text: str, ending: str = "\n") -> int:  # as Django's streams
        return super().write(text + ending)
