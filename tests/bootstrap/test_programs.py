"""How programs are run: their log, their output, and what they inherit."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from pathlib import Path

import pytest

from router.installation.programs import run_logged
from tests.bootstrap.scripted_programs import ScriptedPrograms, make_checkout


def test_output_and_errors_reach_the_log_and_the_caller_line_by_line(tmp_path: Path) -> None:
    code = "import sys; print('one'); sys.stdout.flush(); print('two', file=sys.stderr); sys.exit(3)"
    seen: list[str] = []
    finished = run_logged([sys.executable, "-c", code], tmp_path / "x.log", dict(os.environ), seen.append)

    assert finished.status == 3
    assert seen == ["one\n", "two\n"]
    assert (tmp_path / "x.log").read_text() == finished.output == "one\ntwo\n"


def test_a_program_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_logged(["a-program-that-nobody-has"], tmp_path / "x.log", {"PATH": ""})


def test_the_lock_is_held_while_a_program_of_a_dead_start_still_runs(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path, ScriptedPrograms())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", f"open({str(pipe)!r}).read()"]
    program = threading.Thread(target=run_logged, args=(command, tmp_path / "x.log", dict(os.environ)))
    with checkout.only_one_start():
        program.start()
        writer = pipe.open("w")  # returns when the program has opened its end
    with (checkout.state / "lock").open("a") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        writer.close()
        program.join(timeout=10)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
