# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The vendors' command-line tools of a simulated machine."""

import json
import re

import pytest

from accel_sim.vendor_tools import answer

#: A command of each tool, and what stands in its output once a device, as programs look for it.
COUNTED = {
    "npu-smi info": r"^\| \d+ +Ascend910B2 ",
    "npu-smi info -l": r"NPU ID +: \d+",
    "npu-smi info -m": r"^\t\d+ +\d+ +\d+ ",
    "hl-smi": r"GAUDI3",
    "hl-smi -L": r"Module ID\s+:\s+(\d+)",  # DeepSpeed's tests
    "hl-smi -Q index,module_id -f csv,noheader": r"^\d+, \d+$",
    "nvidia-smi": r"NVIDIA H100 \(simulated\)",
    "nvidia-smi -L": r"^GPU \d+: ",
    "nvidia-smi --list-gpus": r"^GPU \d+: ",
    "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits": r"^NVIDIA H100 \(simulated\), 16384$",
    "xpu-smi discovery": r"Device Name: ",
    "xpu-smi discovery -j": r'"device_id": \d+',
    "clinfo": r"Device Type.*GPU",  # DeepSpeed's tests
    "clinfo -l": r"-- Device #\d+: ",
    "cnmon": r"MLU590",
    "teco-smi": r"TECO_AICARD_01",
}


@pytest.mark.parametrize("command", COUNTED)
def test_tool_shows_each_device_and_says_that_it_is_simulated(command, monkeypatch):
    monkeypatch.setenv("ACCEL_SIM_DEVICES", "3")
    name, *arguments = command.split()
    status, text, error = answer(name, arguments)
    assert (status, error) == (0, "")
    assert len(re.findall(COUNTED[command], text, re.MULTILINE)) == 3, text
    assert "(simulated)" in text or "noheader" in command
    if command.endswith("-j"):
        assert [device["device_id"] for device in json.loads(text)["device_list"]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("nvidia-smi --query-gpu=memory.total --format=csv", "memory.total [MiB]\n8192 MiB\n8192 MiB\n"),
        ("nvidia-smi --query-gpu=index --format=csv,noheader -i 1", "1\n"),
        ("nvidia-smi --query-gpu count --format csv,noheader --id=0", "2\n"),
        ("hl-smi -Q module_id,memory.free -f csv", "module_id, memory.free [MiB]\n0, 8192 MiB\n1, 8192 MiB\n"),
        ("hl-smi --query-aip=index --format=csv,noheader,nounits -i 0000:11:00.0", "1\n"),
    ],
)  # fmt: skip
def test_query_shows_the_fields_that_are_asked(command, expected, monkeypatch):
    monkeypatch.setenv("ACCEL_SIM_DEVICES", "2")
    monkeypatch.setenv("ACCEL_SIM_MEMORY", "8GiB")
    name, *arguments = command.split()
    assert answer(name, arguments) == (0, expected, "")


@pytest.mark.parametrize(
    "command",
    [
        "npu-smi", "npu-smi info -x", "hl-smi --wings", "hl-smi -Q wings -f csv", "hl-smi -Q index",
        "nvidia-smi --wings", "nvidia-smi --query-gpu=wings --format=csv", "nvidia-smi --query-gpu=name",
        "nvidia-smi --query-gpu=name --format=csv -i 7", "xpu-smi", "xpu-smi discovery wings", "cnmon wings",
        "teco-smi wings",
    ],
)  # fmt: skip
def test_unknown_argument_is_an_error(command):
    name, *arguments = command.split()
    status, text, error = answer(name, arguments)
    assert status != 0
    assert text or error


def test_machine_without_a_device_says_so(monkeypatch):
    monkeypatch.setenv("ACCEL_SIM_DEVICES", "0")
    assert answer("nvidia-smi", ["-L"]) == (6, "No devices were found\n", "")
    assert answer("hl-smi", []) == (1, "no AIPs available\n", "")
    assert answer("npu-smi", ["info", "-l"])[1].strip().endswith(": 0")


def test_tools_of_the_vendor_alone_are_on_path(python):
    source = """
import shutil, subprocess
print(shutil.which("nvidia-smi"), subprocess.check_output(["npu-smi", "info", "-l"]))
"""
    done = python("npu", source, devices=3)
    assert "None" in done.stdout, done.stderr
    assert done.stdout.count("NPU ID") == 3
