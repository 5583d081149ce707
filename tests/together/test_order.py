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
    "supa": "torch_supa",
    "klxpu": "torch_xmlir",
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
    assert found.answer["claimed"] == (first if first in ("npu", "sdaa", "mlu", "supa") else "privateuseone")
    # xpu yields to cuda, which is asked for that reason: torch counts no CUDA device here.
    below = {LABELS.get(key, key) for key in present[1:]} - ({"cuda"} if first == "xpu" else set())
    assert found.states("outranked") == below | {"cpu"}
    above = set(KEYS) - set(present)
    assert found.states("absent") >= {LABELS.get(key, key) for key in above}
