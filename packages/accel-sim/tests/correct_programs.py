# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs whose work is ordered, or does not meet, in ways that a detector might miss: prints what each finds."""

import json
import sys
import threading
from typing import Any

import torch
from racy_programs import npu, on_device, outcome, pinned, side_stream

PROGRAMS: dict[str, Any] = {}


def correct(program: Any) -> Any:
    PROGRAMS[program.__name__] = program
    return program


@correct
def two_streams_read(_: bool) -> Any:
    there, side = on_device(1), side_stream()
    with npu.stream(side):
        one = there.sum()
    two = there.sum()
    npu.current_stream().wait_stream(side)
    return (one + two).item()


@correct
def two_streams_write_halves(_: bool) -> Any:
    there, side = on_device(1), side_stream()
    with npu.stream(side):
        there[:512].add_(1)
    there[512:].add_(2)
    npu.synchronize()
    return there.sum().item()


@correct
def two_streams_write_alternate_columns(_: bool) -> Any:
    there = torch.ones(64, 64, device="npu")
    side = side_stream()
    with npu.stream(side):
        there[:, ::2].add_(1)
    there[:, 1::2].add_(2)
    npu.synchronize()
    return there.sum().item()


@correct
def shape_is_looked_at_while_another_stream_writes(_: bool) -> Any:
    there, side = on_device(1), side_stream()
    with npu.stream(side):
        there.add_(1)
    view = there.view(2, 512).t()[1:3].detach()
    again = torch.empty_like(there)
    npu.synchronize()
    return [view.shape[1], again.numel(), there.sum().item()]


@correct
def order_goes_through_a_third_stream(_: bool) -> Any:
    there, first, second = on_device(0), side_stream(), npu.Stream()
    with npu.stream(first):
        there.copy_(pinned(1), non_blocking=True)
    second.wait_stream(first)
    npu.current_stream().wait_stream(second)
    return there.sum().item()


@correct
def host_waits_by_reading_a_number(_: bool) -> Any:
    there, here = on_device(1), pinned(0)
    here.copy_(there, non_blocking=True)
    there.sum().item()
    return here.sum().item()


@correct
def host_asks_an_event(_: bool) -> Any:
    there, here = on_device(1), pinned(0)
    here.copy_(there, non_blocking=True)
    copied = npu.current_stream().record_event()
    while not copied.query():
        pass
    return here.sum().item()


@correct
def host_waits_for_a_stream_that_waited(_: bool) -> Any:
    there, here, side = on_device(1), pinned(0), side_stream()
    with npu.stream(side):
        here.copy_(there, non_blocking=True)
    npu.current_stream().wait_stream(side)
    npu.current_stream().synchronize()
    return here.sum().item()


@correct
def one_thread_waits_and_another_reads(_: bool) -> Any:
    there, here = on_device(1), pinned(0)
    here.copy_(there, non_blocking=True)
    thread = threading.Thread(target=npu.synchronize)
    thread.start()
    thread.join()
    return here.sum().item()


@correct
def ordinary_host_memory_is_copied_at_once(_: bool) -> Any:
    here = torch.ones(1024)
    there = here.to("npu", non_blocking=True)
    here.zero_()
    back = torch.empty(1024)
    back.copy_(there, non_blocking=True)
    return back.sum().item()


@correct
def pinned_columns_are_read_at_once(_: bool) -> Any:
    here = torch.ones(32, 32).pin_memory()
    there = torch.zeros(32, 16, device="npu")
    there.copy_(here[:, ::2], non_blocking=True)
    here.zero_()
    return there.sum().item()


@correct
def memory_is_freed_once_its_stream_has_waited(_: bool) -> Any:
    there, side = on_device(1), side_stream()
    with npu.stream(side):
        there.add_(1)
    npu.current_stream().wait_stream(side)
    del there
    return on_device(0).sum().item()


@correct
def memory_stays_with_the_stream_it_is_from(_: bool) -> Any:
    side = side_stream()
    with npu.stream(side):
        total = torch.ones(1024, device="npu").sum()
        again = torch.zeros(1024, device="npu").sum()
    npu.current_stream().wait_stream(side)
    return (total + again).item()


@correct
def devices_copy_from_one_another(_: bool) -> Any:
    there = torch.ones(1024, device="npu:1").add_(1)
    here = there.to("npu:0", non_blocking=True)
    there.zero_()
    return here.sum().item()


@correct
def refused_operator_has_touched_nothing(_: bool) -> Any:
    there, elsewhere = on_device(1), torch.ones(1024, device="npu:1")
    try:
        there + elsewhere
    except RuntimeError:
        elsewhere.zero_()
    del elsewhere
    return (there + torch.ones(1024, device="npu:1").to("npu:0")).sum().item()


@correct
def backward_pass_of_two_streams(_: bool) -> Any:
    weight, side = on_device(2.0).requires_grad_(), side_stream()
    with npu.stream(side):
        doubled = weight * 2
    npu.current_stream().wait_stream(side)
    (doubled * 3).sum().backward()
    return weight.grad.sum().item()


@correct
def graph_is_replayed(_: bool) -> Any:
    there, graph = on_device(1), npu.NPUGraph()
    with npu.graph(graph):
        result = there * 2
    there.add_(1)
    graph.replay()
    return result.sum().item()


def main() -> None:
    found = {name: outcome(program, True) for name, program in PROGRAMS.items()}
    sys.stdout.write(json.dumps(found) + "\n")


main()
