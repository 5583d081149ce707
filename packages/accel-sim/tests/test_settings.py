# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Number of devices, memory, and the environment of child processes."""

import json

import pytest

import accel_sim
from accel_core.cli.main import main
from accel_sim import settings
from accel_sim.errors import InvalidSetting


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
    with pytest.raises(InvalidSetting, match=name):
        settings.read()


def test_device_of_a_set_size_runs_out_of_memory_and_recovers(python):
    source = """
import torch, torch_npu
kept = torch.empty(3 << 20, dtype=torch.uint8, device="npu")
try:
    torch.empty(2 << 20, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError as error:
    print("NPU out of memory" in str(error))
del kept
print(torch.empty(4 << 20, dtype=torch.uint8, device="npu").nbytes, torch.npu.mem_get_info(1))
"""
    done = python("npu", source, devices=2, memory="4MiB")
    assert done.stdout.splitlines() == ["True", "4194304 (4194304, 4194304)"], done.stderr


@pytest.mark.parametrize("key", ["npu", "xpu"])
def test_spawned_children_have_the_device(python, key):
    # npu comes with a stub package, xpu with torch itself.
    source = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(eval, ("str(__import__('torch').ones(2, device={key!r}))",)))
"""
    done = python(key, source.format(key=key))
    assert done.stdout.strip() == f"tensor([1., 1.], device='{key}:0')", done.stderr


def test_second_kind_of_device_in_one_process_is_refused(python):
    source = "import torch_npu; import accel_sim; accel_sim.activate('hpu')"
    assert "it already simulates npu" in python("npu", source).stderr


# --- a device of somebody else's, described in a file

CARD = {
    "key": "card",
    "collectives": "cardccl",
    "device_name": "Card (simulated)",
    "claims": True,
    "packages": ["maker.torch_card"],
    "distribution": ["torch_card", "2.0"],
    "visible": ["CARDS"],
    "device_nodes": ["dev/card{}"],
}


def test_described_device_computes_under_its_own_names(python, tmp_path):
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
    done = python(str(tmp_path / "card.json"), source, env={"CARDS": "0,1"}, devices=3)
    assert done.stdout.splitlines() == [
        "2.0 2 Card (simulated)",
        "card:1 True",
        "['card0', 'card1', 'card2']",
        "2",
    ], done.stderr


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
    with pytest.raises(InvalidSetting, match=reason) as caught:
        accel_sim.environment(str(file))
    assert str(file) in str(caught.value)


def test_command_names_a_device_that_it_does_not_know(capsys):
    assert main(["sim", "card", "--", "true"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("[ACC-701] ")
    assert "'card'" in error
