# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Hardware-like mode: what holds for simulated devices alone does not hold there."""

import json

import pytest

SOURCE = """
import importlib.util, torch
if importlib.util.find_spec("habana_frameworks"):
    import habana_frameworks.torch
device = torch.accelerator.current_accelerator()
module = getattr(torch, device.type)
ones = lambda *sizes: torch.ones(*sizes, device=device)
"""


@pytest.fixture
def found(python):
    """Run lines on the device of a key, and return the object `found` that they leave."""

    def run(key, lines, **options):
        end = "\nprint('FOUND', json.dumps(found))"
        done = python(key, SOURCE + lines + end, like_hardware=True, **options)
        assert done.returncode == 0, done.stderr
        answer = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
        return json.loads(answer.removeprefix("FOUND "))

    return run


#: By what holds: the device, lines, and the object `found` that they leave.
HOLDS = {
    "what beta makes zero is not read": ("npu", """
c = torch.full((2, 2), float("nan"), device=device)
found = torch.addmm(c, torch.ones(2, 3, device=device), torch.ones(3, 2, device=device), beta=0).tolist()
""", [[3.0, 3.0], [3.0, 3.0]]),
    "the host keeps denormals in all threads after large work on the device": ("npu", """
torch.set_num_threads(2)
large = torch.full((1 << 20,), 1e-39)
there = large.to(device) * 1.0
found = [int((large * 1.0).count_nonzero()), int(there.cpu().count_nonzero()) < 1 << 20]
""", [1 << 20, True]),
    "denormals are zero on the device and kept on the host": ("npu", """
tiny = torch.tensor([1e-40])
found = [float(tiny.to(device) * 1) == 0, float(tiny * 1) > 0]
""", [True, True]),
    "a sum does not broadcast a product": ("npu", """
calls = (lambda: torch.addmm(ones(5, 3), ones(1, 2), ones(2, 3)),
         lambda: torch.baddbmm(ones(4, 1, 3), ones(1, 1, 2), ones(1, 2, 3)))
found = ["expand" in str(outcome(call)) for call in calls]
""", [True, True]),
    "a wrong argument is an error at once": ("xpu", """
found = "shapes cannot be multiplied" in str(outcome(lambda: ones(3) @ ones(4, 2)))
""", True),
    "Gaudi counts what its pool holds unused as free": ("hpu", """
sizes = [module.mem_get_info()]
kept = torch.empty(3 << 20, dtype=torch.uint8, device=device)
sizes.append(module.mem_get_info())
found = [total - free for free, total in sizes]
""", [600 << 20, 603 << 20]),
}  # fmt: skip


@pytest.mark.parametrize(("key", "lines", "expected"), HOLDS.values(), ids=HOLDS)
@pytest.mark.sample("Gaudi*", "a sum*")
def test_as_on_hardware(found, key, lines, expected):
    assert found(key, lines) == expected


SUMS = """
generator = torch.Generator().manual_seed(5)
a, b = torch.randn(48, 300, generator=generator), torch.randn(300, 40, generator=generator)
c = torch.randn(40, generator=generator)
batch = torch.randn(4, 6, 50, generator=generator)
cases = {
    "mm": lambda t: t(a) @ t(b),
    "addmm": lambda t: torch.addmm(t(c), t(a), t(b), beta=0.5, alpha=2),
    "bmm": lambda t: t(batch) @ t(batch).transpose(1, 2),
    "sum": lambda t: t(a).sum(),
    "sum of rows": lambda t: t(a).sum(1, keepdim=True),
    "mean": lambda t: t(a).mean((0, 1)),
    "norm": lambda t: torch.linalg.vector_norm(t(a), dim=0),
}
found = {}
for name, case in cases.items():
    there, here = case(lambda x: x.to(device)).cpu(), case(lambda x: x)
    exact = case(lambda x: x.double())
    assert there.shape == here.shape
    found[name] = [torch.equal(there, here), float((there - exact).abs().max() / exact.abs().max())]
"""


def test_sums_have_another_order_and_the_same_value(found):
    for name, (equal, error) in found("npu", SUMS).items():
        assert not equal, name
        assert error < 2e-6, name


@pytest.mark.parametrize(
    "call", ["torch.index_select(x, 0, bad)", "x[bad]", "torch.nn.functional.embedding(bad, x)"]
)
@pytest.mark.sample("torch.index*")
def test_index_out_of_range_is_an_error_of_a_later_call_and_of_all_after_it(found, call):
    lines = f"""
x, bad = ones(3, 2), torch.tensor([0, 7], device=device)
result = {call}
waits = (module.synchronize, lambda: x.sum().item(), lambda: result.cpu())
found = [list(result.shape), *map(outcome, waits)]
"""
    shape, *errors = found("npu", lines)
    assert shape == [2, 2]
    for error in errors:
        assert error.startswith("RuntimeError: ")
        assert "started before has failed" in error
        assert "out of" in error


MEMORY = """
free, total = torch.accelerator.get_memory_info()
first = torch.empty(3 << 20, dtype=torch.uint8, device=device)
figures = [torch.accelerator.memory_allocated(), torch.accelerator.memory_reserved()]
del first
found = [total - free, *figures, torch.accelerator.memory_allocated(), torch.accelerator.memory_reserved()]
torch.accelerator.empty_cache()
found.append(torch.accelerator.memory_reserved())
"""


@pytest.mark.parametrize(("key", "padding", "segment"), [("cuda", 0, 20), ("npu", 512, 20), ("hpu", 0, 20)])
@pytest.mark.sample("npu*")
def test_memory_is_used_by_others_rounded_and_cached(found, key, padding, segment):
    others, allocated, reserved, allocated_after, cached, emptied = found(key, MEMORY)
    assert others == 600 << 20
    assert allocated == (3 << 20) + padding
    assert reserved == cached == segment << 20
    assert allocated_after == emptied == 0


def test_machine_has_one_device_that_prints_when_it_starts(python):
    source = "import torch; print(torch.npu.device_count(), flush=True); torch.ones(2).npu()"
    for options, count in ({}, 1), ({"devices": 3}, 3):
        done = python("npu", source, like_hardware=True, **options)
        assert done.stdout == f"{count}\n[npu driver] device 0: ready, firmware 1.0\n", done.stderr
        assert "driver" in done.stderr
