# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel sim DEVICE -- PROGRAM`: the program stands in place of the command, with its signals and its exit status.

Settings: number of devices, memory, devices of somebody else's.
"""

import json
import signal
import subprocess
import sys

import pytest

import accel_sim
from accel_core import processes
from accel_core.errors import InvalidInput
from accel_sim import real_runtime, settings

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
while True:
    time.sleep(0.05)  # signal.pause() misses a signal that arrives just before it
"""


def ended(*words: str) -> tuple[int, str, str]:
    """Return exit status, standard output and errors."""
    done = processes.run([*ACCEL, "sim", *words], 300)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def shell(program: str, rest: str) -> processes.Ended:
    """Run the program in a shell that goes on with the rest."""
    return processes.run(["sh", "-c", f"{' '.join(ACCEL)} sim npu -- {program}{rest}"], 300)


def test_program_has_the_devices_and_its_exit_status_is_that_of_the_command():
    program = "import torch, sys; print(torch.npu.device_count()); sys.exit(7)"
    assert ended("npu", "--devices", "5", "--", sys.executable, "-c", program)[:2] == (7, "5")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_the_command_is_the_programs_whose_handler_finishes(number):
    command = [*ACCEL, "sim", "npu", "--", sys.executable, "-c", HANDLERS]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout.readline() == "runs\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=300)
    assert (process.returncode, out) == (5, f"ended by {number}\n")


def test_program_killed_by_a_signal_is_128_and_its_number_to_a_shell():
    assert shell("sh -c 'kill -KILL $$'", "; echo $?").stdout.split() == [str(128 + signal.SIGKILL)]


def test_program_that_writes_into_a_closed_pipe_ends_as_without_the_command():
    done = shell("yes", " | head -1")
    assert (done.stdout, done.stderr) == ("y\n", "")


ECHO, MISSING = "echo a -- --devices x --", "accel sim: {}: not found, or not executable"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        *((f"{options} {ECHO}", (0, "a -- --devices x --", ""))
          for options in ("", "--", "--devices 1", "--devices 1 --")),
        *((f"-- {name} x", (127, "", MISSING.format(name))) for name in ("no-such-program", "./no/such/program")),
    ],
)  # fmt: skip
def test_words_of_the_program_are_its_own(words, wanted):
    assert ended("npu", *words.split()) == wanted


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("2KiB", 2048), ("3 MiB", 3 << 20), ("8GiB", 8 << 30), ("1gib", 1 << 30)],
)
def test_memory_is_given_in_bytes_or_binary_units(monkeypatch, text, size):
    monkeypatch.setenv("ACCEL_SIM_MEMORY", text)
    assert settings.read().memory == size


@pytest.mark.parametrize(
    ("name", "text"), [("ACCEL_SIM_MEMORY", "much"), ("ACCEL_SIM_DEVICES", "-1"), ("ACCEL_SIM_DEVICES", "65")]
)
def test_setting_without_a_meaning_is_refused_by_its_name(monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(InvalidInput, match=name):
        settings.read()


def test_second_kind_of_device_in_one_process_is_refused(python):
    source = "import torch_npu; import accel_sim; accel_sim.activate('hpu')"
    assert "it already simulates npu" in python("npu", source).stderr


CARD = {
    "key": "card", "collectives": "cardccl", "device_name": "Card (simulated)", "claims": True,
    "packages": ["maker.torch_card"], "distribution": ["torch_card", "2.0"], "visible": ["CARDS"],
    "device_nodes": ["dev/card{}"],
}  # fmt: skip


def test_described_device_computes_under_its_own_names(printed, tmp_path):
    (tmp_path / "card.json").write_text(json.dumps(CARD))
    source = """
import importlib.metadata, os, subprocess, sys, torch
import maker.torch_card
print(importlib.metadata.version("torch_card"), torch.card.device_count(), torch.card.get_device_name(0))
print((torch.ones(2, device="card:1") + 1).device, torch.distributed.is_backend_available("cardccl"))
print(sorted(os.listdir(os.path.join(os.environ["ACCEL_SYSROOT"], "dev"))))
code = "import maker.torch_card, torch; print(torch.card.device_count())"
os.chdir("/")
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
"""
    expected = ["2.0 2 Card (simulated)", "card:1 True", "['card0', 'card1', 'card2']", "2"]
    assert printed(str(tmp_path / "card.json"), source, env={"CARDS": "0,1"}, devices=3) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file"),
        ("{", "JSONDecodeError"),
        ("[]", "AttributeError"),
        ('{"key": "card"}', "collectives"),
        (json.dumps({**CARD, "wings": 2}), "wings"),
    ],
)
def test_description_that_can_not_be_used_is_named(tmp_path, text, reason):
    file = tmp_path / "card.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidInput, match=reason) as caught:
        accel_sim.environment(str(file))
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "runtime", "options", "said"),
    [
        ("npu", "abacus", {}, "accel sim npu --runtime torch_npu"),
        ("xpu", "torch_npu", {}, "runtime 'torch_npu' of 'xpu'"),
        ("npu", "torch_npu", {"modes": ["--race"]}, "--race"),
        ("npu", "torch_npu", {"base": {"ACCEL_SIM_DEFER": "1"}}, "ACCEL_SIM_DEFER"),
        ("npu", "torch_npu", {"devices": -1}, "ACCEL_SIM_DEVICES"),
    ],
)
def test_runtime_without_a_driver_is_rejected(key, runtime, options, said):
    with pytest.raises(InvalidInput, match=said):
        real_runtime.environment(key, runtime, **options)
