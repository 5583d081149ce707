# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the probe of torch_mlu alone looks at; tests/vendors/test_probes.py has what all probes do."""

import pytest

from accel_core.selection import candidates
from accel_core.selection.candidates import State
from accel_mlu import visible
from accel_mlu.vendor import VENDOR

COUNTING = """
class mlu:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
"""


def test_the_count_names_a_variable_that_is_overruled(fake_runtime, monkeypatch):
    fake_runtime.install("torch_mlu", "1.25.0", COUNTING)
    monkeypatch.setenv("CN_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("MLU_VISIBLE_DEVICES", "2,3")
    found = candidates.confirmed(candidates.of_vendor(VENDOR), VENDOR)
    assert (found.state, found.devices) == (State.PRESENT, 2)
    assert found.reason == "torch.mlu counts 2; CN_VISIBLE_DEVICES=0,1 overrules MLU_VISIBLE_DEVICES=2,3"
    monkeypatch.setenv("CN_VISIBLE_DEVICES", "0,1,9")
    found = candidates.confirmed(candidates.of_vendor(VENDOR), VENDOR)
    assert found.reason.endswith("; the runtime ignores 9 of CN_VISIBLE_DEVICES=0,1,9")


# --- CN_VISIBLE_DEVICES goes before MLU_VISIBLE_DEVICES

CN, MLU = "CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("cn", "mlu", "first", "reported"),
    [
        (None, None, MLU, ""),
        (None, "0,1", MLU, ""),
        ("0", None, CN, ""),
        ("0", "0", CN, ""),
        ("0", "1", CN, "CN_VISIBLE_DEVICES=0 overrules MLU_VISIBLE_DEVICES=1"),
        ("", "1", CN, "CN_VISIBLE_DEVICES= overrules MLU_VISIBLE_DEVICES=1"),
    ],
)
def test_the_variable_that_decides_comes_first(cn, mlu, first, reported, monkeypatch):
    for name, value in ((CN, cn), (MLU, mlu)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert visible.variables()[0] == first
    assert set(visible.variables()) == {CN, MLU}
    assert visible.VISIBLE.remarks(2) == [reported] * bool(reported)


def test_variable_of_cuda_decides_last(monkeypatch):
    for name in (CN, MLU):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    assert visible.variables() == ["CUDA_VISIBLE_DEVICES", CN, MLU]


#: What torch_mlu's own tests expect.
READ = {
    "1gpu2,2ampere": [],
    "0, 1, 2, -1, 3": [0, 1, 2],
    "0, 1, 2, 1": [],
    "2, +3, -0, 5": [2],
    "one,two,3,4": [],
    "4,3,two,one": [4, 3],
    "33033011-2157-0000-0000-000000000000": ["33033011-2157-0000-0000-000000000000"],
}


@pytest.mark.parametrize(("value", "devices"), READ.items(), ids=READ)
def test_visible_devices_as_torch_mlu_reads_them(value, devices):
    assert list(visible.VISIBLE.read(value).values()) == devices
