# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A process that is forked from one that uses the device cannot use it."""

import json

import pytest

REFUSED = (
    "Cannot re-initialize {name} in forked subprocess. To use {name} with multiprocessing, you must use the "
    "'spawn' start method"
)

#: Runs each line of `uses` in a forked child of its own, and prints what it raises.
FORKED = """
import json, os, torch
{first}
def outcome(use):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            exec(use)
            text = "nothing"
        except BaseException as error:
            text = f"{{type(error).__name__}}: {{error}}"
        os.write(write, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(read, 10000).decode()
print(json.dumps([outcome(use) for use in {uses!r}]))
"""


def outcomes(python, key: str, first: str, *uses: str) -> list[str]:
    done = python(key, FORKED.format(first=first, uses=list(uses)))
    assert not done.returncode, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "key",
    ["npu", *(pytest.param(key, marks=pytest.mark.slow) for key in ("mlu", "sdaa", "xpu", "mps", "cuda"))],
)
def test_device_is_refused_in_a_forked_process(python, key):
    package = "" if key in ("xpu", "mps", "cuda") else f"import torch_{key}; "
    uses = [f"torch.ones(1, device={key!r})", "kept + 1", "kept.cpu()"]
    if key != "mps":
        uses += [f"torch.{key}.synchronize()", f"torch.{key}.set_device(0)"]
    found = outcomes(python, key, f"{package}kept = torch.ones(1, device={key!r})", *uses)
    assert set(found) == {"RuntimeError: " + REFUSED.format(name=key.upper())}


def test_what_needs_no_device_works_in_a_forked_process(python):
    first = "import torch_npu; kept = torch.ones(1, device='npu')"
    uses = (
        "torch.manual_seed(1)",
        "globals().pop('kept')",
        "torch.ones(1) + 1",
        "assert not torch.npu.is_initialized()",
        "assert torch.npu._is_in_bad_fork()",
        "torch.npu.device_count()",
    )
    assert outcomes(python, "npu", first, *uses) == ["nothing"] * len(uses)


def test_process_that_has_not_used_the_device_may_fork(python):
    first = "import torch_npu; torch.npu.is_available(); torch.npu.device_count()"
    assert outcomes(python, "npu", first, "torch.ones(1, device='npu') + 1") == ["nothing"]


def test_cuda_is_available_opens_the_driver(python):
    use = "torch.ones(1, device='cuda')"
    # DeepSpeed's CUDA accelerator sets it, in whatever process imports that.
    first = "import os; os.environ.pop('PYTORCH_NVML_BASED_CUDA_CHECK', None); torch.cuda.is_available()"
    assert "Cannot re-initialize CUDA" in outcomes(python, "cuda", first, use)[0]
    quiet = "import os; os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'] = '1'; torch.cuda.is_available()"
    assert outcomes(python, "cuda", quiet, use) == ["nothing"]


def test_habana_does_not_check_it(python):
    first = "import habana_frameworks.torch; kept = torch.ones(1, device='hpu')"
    assert outcomes(python, "hpu", first, "kept + 1", "torch.ones(1, device='hpu')") == ["nothing"] * 2
