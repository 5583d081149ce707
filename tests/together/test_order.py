# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Several vendors' devices on one machine: the order of the cascade, and nothing below the chosen one is imported."""

from typing import Any

import pytest

#: The order, and what importing each one's runtime leaves in sys.modules.
ORDER = {
    "xpu": "",
    "npu": "torch_npu",
    "sdaa": "torch_sdaa",
    "mps": "",
    "hpu": "habana_frameworks.torch",
    "mlu": "torch_mlu",
    "cuda": "",
}
KEYS = list(ORDER)
LABELS = {"xpu": "xpu (native)"}
CLASSES = {key: f"{key.upper()}_Accelerator" for key in [*ORDER, "cpu"]}


@pytest.mark.parametrize("first", KEYS)
@pytest.mark.sample("cuda", "mlu")
def test_the_first_with_devices_is_chosen_and_none_below_is_imported(machine: Any, first: str) -> None:
    present = KEYS[KEYS.index(first) :]
    machine.install(*present)
    found = machine.detect("" if ORDER[first] else first)
    assert (found.chosen, found.answer["class"]) == (first, CLASSES[first])
    assert found.imported == [name for name in [ORDER[first]] if name]
    assert found.answer["claimed"] == (first if first in ("npu", "sdaa", "mlu") else "privateuseone")
    # xpu yields to cuda, which is asked for that reason: torch counts no CUDA device here.
    below = {LABELS.get(key, key) for key in present[1:]} - ({"cuda"} if first == "xpu" else set())
    assert found.states("outranked") == below | {"cpu"}
    above = set(KEYS) - set(present)
    assert found.states("absent") >= {LABELS.get(key, key) for key in above}


def test_the_chosen_one_is_explained_with_all_that_it_outranks(machine: Any) -> None:
    machine.install("npu", "sdaa", "hpu", "mlu")
    found = machine.detect("", "deepspeed")
    assert found.answer["same"]
    lines = found.answer["text"].splitlines()
    assert lines[0] == "accelerator: npu (detected, accel-npu 0.1.0: torch.npu counts 2)"
    reported = {line.strip().partition(":")[0]: line for line in lines[1:]}
    for key, evidence in {
        "sdaa": "torch_sdaa 3.2.0; dev/tcaicard0 exists",
        "hpu": "habana-torch-plugin 1.19.0; dev/accel/accel0 exists",
        "mlu": "torch_mlu 1.25.0; dev/cambricon_dev0 exists",
    }.items():
        assert reported[key].startswith(f"  {key}: outranked: ")
        assert evidence.split("; ")[0] in reported[key]
        assert evidence.split("; ")[1].removeprefix("dev/") in reported[key]


@pytest.mark.parametrize("key", ["sdaa", "hpu", "mlu", "cpu"])
@pytest.mark.sample("sdaa")
def test_what_is_asked_for_is_chosen_and_no_other_runtime_imported(machine: Any, key: str) -> None:
    machine.install("npu", "sdaa", "hpu", "mlu")
    found = machine.detect(DS_ACCELERATOR=key)
    assert (found.chosen, found.answer["class"]) == (key, CLASSES[key])
    assert found.imported == [ORDER[key]] if key in ORDER else found.imported == []


def test_the_doctor_asks_each_in_a_process_of_its_own(machine: Any) -> None:
    machine.install("npu", "sdaa", "hpu", "mlu")
    found = machine.doctor()
    assert found.chosen == "npu"
    assert found.states("outranked") == {"sdaa", "hpu", "mlu", "cpu"}
    devices = {c["label"]: c["devices"] for c in found.answer["candidates"]}
    assert {key: devices[key] for key in ("npu", "sdaa", "hpu", "mlu")} == {
        "npu": 2, "sdaa": 2, "hpu": 2, "mlu": 2,
    }  # fmt: skip


@pytest.mark.slow
def test_a_third_party_s_package_takes_its_place_in_the_order(machine: Any) -> None:
    device = machine.new_vendor("newcard")
    machine.install(device, "cuda")
    found = machine.detect(device)
    assert (found.chosen, found.imported) == ("newcard", ["torch_newcard"])
    assert found.states("outranked") == {"cuda", "cpu"}
    machine.install("mlu")
    found = machine.detect(device)
    assert (found.chosen, found.imported) == ("mlu", ["torch_mlu"])
    assert found.states("outranked") == {"newcard", "cuda", "cpu"}
