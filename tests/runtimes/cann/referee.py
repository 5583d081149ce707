# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.runtimes.cann.referee FILE`: answers each of questions.txt on this process's npu, as JSON."""

import io
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable
from copy import deepcopy  # noqa: F401  of a question
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: F401  of a question
import torch_npu  # noqa: F401

npu: Any = torch.npu  # type: ignore[attr-defined]


def questions() -> list[str]:
    lines = Path(__file__).with_name("questions.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def reloaded(tensor: torch.Tensor, **options: Any) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    loaded: torch.Tensor = torch.load(file, **options)
    return loaded


def in_stream(use: Callable[[Any], Any]) -> Any:
    stream = npu.Stream()
    with npu.stream(stream):
        return use(stream)


def elapsed(event: Any) -> bool:
    first, last = (event(enable_timing=True) for _ in range(2))
    first.record()
    last.record()
    last.synchronize()
    return bool(first.elapsed_time(last) >= 0)


def grown(make: Callable[[], torch.Tensor]) -> int:
    """Return the bytes by which a tensor makes the allocated memory grow."""
    before = npu.memory_allocated()
    kept = make()
    after = npu.memory_allocated()
    del kept
    return int(after - before)


def repeated(draw: Callable[[], Any]) -> bool:
    found = []
    for _ in range(2):
        npu.manual_seed(5)
        found.append(draw())
    return bool(found[0] == found[1])


def layer(use: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> list[float]:
    """Return weighted sums of the layer's value and of its gradient."""
    count = math.prod(shape)
    x = torch.sin(torch.arange(count) * 7.0).mul(2).view(shape).npu().requires_grad_()
    value = use(x)
    weights = torch.cos(torch.arange(value.numel()) * 5.0).view(value.shape).npu()
    (gradient,) = torch.autograd.grad((value * weights).sum(), x)
    of_gradient = (gradient.cpu().flatten() * torch.cos(torch.arange(count) * 3.0)).sum()
    return [round(float(found), 3) for found in ((value * weights).sum(), of_gradient)]


def under_autocast(use: Callable[[], Any]) -> Any:
    with torch.autocast("npu", torch.bfloat16):
        return use()


def captured(work: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    graph, x = npu.NPUGraph(), torch.ones(2, device="npu")
    with npu.graph(graph):
        y = work(x)
    x.fill_(3)
    graph.replay()
    npu.synchronize()
    return y.tolist()


def reduced(dtype: torch.dtype, op: Any = dist.ReduceOp.SUM) -> Any:
    tensor = torch.ones(2, device="npu").to(dtype)
    dist.all_reduce(tensor, op)
    return tensor.cpu().tolist()


def answer(question: str) -> str:
    """Return the value's text without addresses, or the error's type: texts are the vendor's."""
    try:
        found = repr(eval(question))
    except Exception as error:
        return type(error).__name__
    return re.sub(r"0x[0-9a-f]+|object at .*?>", "…", found)[:200]


def main(out: str) -> None:
    warnings.simplefilter("ignore")
    Path(out).write_text(json.dumps([[each, answer(each)] for each in questions()]), encoding="utf-8")
    os._exit(0)  # what the runtimes do at exit is no question


if __name__ == "__main__":
    main(sys.argv[1])
