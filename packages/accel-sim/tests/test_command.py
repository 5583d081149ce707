# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel sim DEVICE -- PROGRAM`: the program stands in place of the command, with its signals and its exit status."""

import signal
import subprocess
import sys

import pytest

ACCEL = [sys.executable, "-m", "accel_core.cli"]
#: Says that it runs; ends with status 5 in a handler of each signal, which takes a while.
HANDLERS = """
import os, signal, sys, time

def end(number, frame):
    time.sleep(0.2)
    print("ended by", number, flush=True)
    sys.exit(5)

for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, end)
os.write(1, b"runs\\n")  # a handler may not print while print does
signal.pause()
"""


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*ACCEL, "sim", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )  # fmt: skip


def ended(*words: str) -> tuple[int, str, str]:
    """Exit status, standard output and errors."""
    process = start(*words)
    out, errors = process.communicate(timeout=300)
    return process.returncode, out.strip(), errors.strip()


def test_program_has_the_devices_and_its_exit_status_is_that_of_the_command():
    program = "import torch, sys; print(torch.npu.device_count()); sys.exit(7)"
    assert ended("npu", "--devices", "5", "--", sys.executable, "-c", program)[:2] == (7, "5")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_the_command_is_the_programs_whose_handler_finishes(number):
    process = start("npu", "--", sys.executable, "-c", HANDLERS)
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=300)
    assert (process.returncode, out) == (5, f"ended by {number}\n")


def test_program_killed_by_a_signal_is_128_and_its_number_to_a_shell():
    inside = " ".join([*ACCEL, "sim", "npu", "--", "sh", "-c", "'kill -KILL $$'"])
    shell = subprocess.run(["sh", "-c", f"{inside}; echo $?"], capture_output=True, text=True, timeout=300)
    assert shell.stdout.split() == [str(128 + signal.SIGKILL)]


def test_program_that_writes_into_a_closed_pipe_ends_as_without_the_command():
    inside = " ".join([*ACCEL, "sim", "npu", "--", "yes"])
    shell = subprocess.run(["sh", "-c", f"{inside} | head -1"], capture_output=True, text=True, timeout=300)
    assert (shell.stdout, shell.stderr) == ("y\n", "")


@pytest.mark.parametrize("words", [("no-such-program",), ("./no/such/program", "x")])
def test_what_is_no_program_is_one_line_and_127(words):
    status, out, errors = ended("npu", "--", *words)
    assert (status, out) == (127, "")
    assert errors == f"accel sim: {words[0]}: not found, or not executable"


@pytest.mark.parametrize(
    "options",
    [(), ("--",), ("--devices", "1"), ("--devices", "1", "--")],
    ids=["nothing", "--", "options", "options --"],
)
def test_words_of_the_program_are_its_own(options):
    assert ended("npu", *options, "echo", "a", "--", "--devices", "x", "--") == (0, "a -- --devices x --", "")


@pytest.mark.parametrize("wrong", [("--memory", "8gb"), ("--memory", "8foo"), ("--devices", "-3")])
def test_wrong_option_is_an_error_before_the_program_starts(wrong):
    status, out, errors = ended("npu", *wrong, "--", "echo", "started")
    assert (status, out) == (1, "")
    assert "ACC-705" in errors
    assert wrong[1] in errors
