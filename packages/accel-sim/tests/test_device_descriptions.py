# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A device of somebody else's, described in a file."""

import json

import pytest

import accel_sim
from accel_core.cli.main import main
from accel_sim.errors import InvalidSetting

CARD = {
    "key": "card", "collectives": "cardccl", "device_name": "Card (simulated)", "claims": True,
    "packages": ["maker.torch_card"], "distribution": ["torch_card", "2.0"], "visible": ["CARDS"],
    "device_nodes": ["dev/card{}"],
}  # fmt: skip


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
    expected = ["2.0 2 Card (simulated)", "card:1 True", "['card0', 'card1', 'card2']", "2"]
    assert done.stdout.splitlines() == expected, done.stderr


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
