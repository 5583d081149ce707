# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Graphs of simulated devices: recorded once, replayed on new data, with what real capture forbids."""

from __future__ import annotations

import pytest


def test_hpu_runs_what_it_captures_unless_it_is_a_dry_run(python):
    source = """
import torch, habana_frameworks.torch.hpu as hpu
x = torch.ones(2, device="hpu")
for dry_run in (False, True):
    graph = hpu.HPUGraph()
    with hpu.graph(graph, dry_run=dry_run):
        y = x * 2
    print((y + 0).isnan().any().item(), end=" ")
    x.fill_(3)
    graph.replay(asynchronous=True)
    print(y.tolist())
"""
    done = python("hpu", source, env={"PT_HPU_LAZY_MODE": "1"})
    assert done.stdout.splitlines() == ["False [6.0, 6.0]", "True [6.0, 6.0]"], done.stderr


def test_graph_of_torch_accelerator_is_there_where_torch_has_one(python):
    source = """
import torch
x = torch.ones(2, device="xpu")
graph = torch.accelerator.Graph()
with torch.Stream("xpu"), graph:
    y = x + 1
graph.replay()
print(y.tolist())
"""
    done = python("xpu", source)
    assert done.stdout.strip() == "[2.0, 2.0]", done.stderr


@pytest.mark.parametrize(("key", "method"), [("npu", "update"), ("cuda", "raw_cuda_graph")])
def test_methods_that_are_not_simulated_say_so(python, key, method):
    source = f"import torch; torch.{key}.{key.upper()}Graph().{method}()"
    done = python(key, source)
    assert f"{key.upper()}Graph.{method} is not simulated" in done.stderr


def test_collectives_are_refused_in_a_capture(python):
    source = """
import os, torch, torch_npu, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(2, device="npu")
with torch.npu.graph(torch.npu.NPUGraph()):
    try:
        dist.all_reduce(x)
    except RuntimeError as error:
        print(error)
dist.destroy_process_group()
"""
    done = python("npu", source)
    assert "Cannot call a collective during NPU graph capture." in done.stdout, done.stderr
