# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs with a bug in the order of their work, each with its corrected twin; and correct ones, whose work is
ordered, or does not meet, in ways that a detector might miss: `python order_programs.py racy|correct` prints what every
one finds.

A bug's two sides are marked `# first` and `# second`; the corrected twin waits where the bug does not.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch_npu  # noqa: F401  gives this process the device

SIZE = 1024
Program = Callable[[bool], Any]
RACY: dict[str, Program] = {}
CORRECT: dict[str, Callable[[], Any]] = {}
npu: Any = torch.npu  # type: ignore[attr-defined]


def racy(program: Program) -> Program:
    """Add a program: called with whether it is the corrected one, it gives the numbers that it computes."""
    RACY[program.__name__] = program
    return program


def correct(program: Callable[[], Any]) -> Callable[[], Any]:
    CORRECT[program.__name__] = program
    return program


def side_stream() -> Any:
    """A stream that has seen all that was done until now."""
    stream = npu.Stream()
    stream.wait_stream(npu.current_stream())
    return stream


def pinned(value: float) -> torch.Tensor:
    return torch.full((SIZE,), value).pin_memory()


def on_device(value: float) -> torch.Tensor:
    return torch.full((SIZE,), value, device="npu")


@racy
def stream_not_waited_for(right: bool) -> Any:
    there, side = on_device(0), side_stream()
    with npu.stream(side):
        there.copy_(pinned(1), non_blocking=True)  # first
    if right:
        npu.current_stream().wait_stream(side)
    return (there * 2).sum().item()  # second


@racy
def event_not_waited_for(right: bool) -> Any:
    there, side, copied = on_device(0), side_stream(), npu.Event()
    with npu.stream(side):
        there.copy_(pinned(1), non_blocking=True)  # first
        copied.record()
    if right:
        copied.wait()
    return (there * 2).sum().item()  # second


@racy
def memory_not_recorded_on_the_stream(right: bool) -> Any:
    there, side = on_device(0), side_stream()
    with npu.stream(side):
        there.copy_(pinned(1), non_blocking=True)  # first
    if right:
        there.record_stream(side)
    del there
    other = torch.zeros(SIZE, device="npu")  # second
    npu.synchronize()
    return other.sum().item()


@racy
def copy_to_the_host_read_early(right: bool) -> Any:
    there, here = on_device(1), pinned(0)
    here.copy_(there, non_blocking=True)  # first
    there.mul_(3)
    if right:
        npu.current_stream().synchronize()
    return here.sum().item()  # second


@racy
def copy_to_the_host_given_to_numpy_early(right: bool) -> Any:
    here = pinned(0)
    here.copy_(on_device(1), non_blocking=True)  # first
    copied = npu.current_stream().record_event()
    if right:
        copied.synchronize()
    return float(here.numpy().sum())  # second


@racy
def source_of_a_copy_overwritten_early(right: bool) -> Any:
    here = pinned(1)
    there = here.to("npu", non_blocking=True)  # first
    if right:
        npu.current_stream().synchronize()
    here.zero_()  # second
    return there.sum().item()


@racy
def written_while_another_stream_reads(right: bool) -> Any:
    there, here, side = on_device(1), pinned(0), side_stream()
    with npu.stream(side):
        here.copy_(there, non_blocking=True)  # first
    if right:
        npu.current_stream().wait_stream(side)
    there.zero_()  # second
    npu.synchronize()
    return here.sum().item()


@racy
def freed_memory_taken_by_a_stream_that_did_not_wait(right: bool) -> Any:
    used, side = on_device(1), npu.Stream()
    used.add_(1)  # first
    del used
    again = torch.empty(SIZE, device="npu")
    if right:
        side.wait_stream(npu.current_stream())
    with npu.stream(side):
        total = again.fill_(2).sum()  # second
    npu.current_stream().wait_stream(side)
    return total.item()


@racy
def gradient_used_by_a_stream_that_did_not_wait(right: bool) -> Any:
    weight, side = on_device(1.0).requires_grad_(), side_stream()
    weight.mul(3).sum().backward()  # first
    if right:
        side.wait_stream(npu.current_stream())
    with npu.stream(side):
        total = weight.grad.sum()  # second
    npu.current_stream().wait_stream(side)
    return total.item()


@racy
def collective_not_waited_for(right: bool) -> Any:
    gathered = on_device(0)
    work = gather(gathered, on_device(1))  # first
    if right:
        work.wait()
    result = (gathered * 2).sum().item()  # second
    work.wait()
    return result


@racy
def collective_waited_for_on_another_stream(right: bool) -> Any:
    gathered, side = on_device(0), npu.Stream()
    work = gather(gathered, on_device(1))  # first
    with npu.stream(side):
        work.wait()
    if right:
        npu.current_stream().wait_stream(side)
    return (gathered * 2).sum().item()  # second


@racy
def future_not_waited_for(right: bool) -> Any:
    gathered = on_device(0)
    future = gather(gathered, on_device(1)).get_future()  # first
    if right:
        future.wait()
    result = (gathered * 2).sum().item()  # second
    future.wait()
    return result


@racy
def input_of_a_collective_overwritten_early(right: bool) -> Any:
    gathered, given = on_device(0), on_device(1)
    work = gather(gathered, given)  # first
    if right:
        work.wait()
    given.zero_()  # second
    work.wait()
    return gathered.sum().item()


@racy
def collective_started_before_its_input_is_there(right: bool) -> Any:
    given, gathered, side = on_device(0), on_device(0), side_stream()
    with npu.stream(side):
        given.copy_(pinned(1), non_blocking=True)  # first
    if right:
        npu.current_stream().wait_stream(side)
    gather(gathered, given).wait()  # second
    return gathered.sum().item()


def gather(output: torch.Tensor, given: torch.Tensor) -> Any:
    return torch.distributed.all_gather_into_tensor(output, given, async_op=True)


@correct
def two_streams_read() -> Any:
    there, side = on_device(1), side_stream()
    with npu.stream(side):
        one = there.sum()
    two = there.sum()
    npu.current_stream().wait_stream(side)
    return (one + two).item()


@correct
def two_streams_write_halves() -> Any:
    there, side = on_device(1), side_stream()
    with npu.stream(side):
        there[:512].add_(1)
    there[512:].add_(2)
    npu.synchronize()
    return there.sum().item()


@correct
def shape_is_looked_at_while_another_stream_writes() -> Any:
    there, side = on_device(1), side_stream()
    with npu.stream(side):
        there.add_(1)
    view = there.view(2, 512).t()[1:3].detach()
    again = torch.empty_like(there)
    npu.synchronize()
    return [view.shape[1], again.numel(), there.sum().item()]


@correct
def order_goes_through_a_third_stream() -> Any:
    there, first, second = on_device(0), side_stream(), npu.Stream()
    with npu.stream(first):
        there.copy_(pinned(1), non_blocking=True)
    second.wait_stream(first)
    npu.current_stream().wait_stream(second)
    return there.sum().item()


@correct
def host_waits_by_reading_a_number() -> Any:
    there, here = on_device(1), pinned(0)
    here.copy_(there, non_blocking=True)
    there.sum().item()
    return here.sum().item()


@correct
def host_asks_an_event() -> Any:
    there, here = on_device(1), pinned(0)
    here.copy_(there, non_blocking=True)
    copied = npu.current_stream().record_event()
    while not copied.query():
        pass
    return here.sum().item()


@correct
def ordinary_host_memory_is_copied_at_once() -> Any:
    here = torch.ones(1024)
    there = here.to("npu", non_blocking=True)
    here.zero_()
    back = torch.empty(1024)
    back.copy_(there, non_blocking=True)
    return back.sum().item()


@correct
def pinned_columns_are_read_at_once() -> Any:
    here = torch.ones(32, 32).pin_memory()
    there = torch.zeros(32, 16, device="npu")
    there.copy_(here[:, ::2], non_blocking=True)
    here.zero_()
    return there.sum().item()


@correct
def memory_is_freed_once_its_stream_has_waited() -> Any:
    there, side = on_device(1), side_stream()
    with npu.stream(side):
        there.add_(1)
    npu.current_stream().wait_stream(side)
    del there
    return on_device(0).sum().item()


@correct
def devices_copy_from_one_another() -> Any:
    there = torch.ones(1024, device="npu:1").add_(1)
    here = there.to("npu:0", non_blocking=True)
    there.zero_()
    return here.sum().item()


@correct
def refused_operator_has_touched_nothing() -> Any:
    there, elsewhere = on_device(1), torch.ones(1024, device="npu:1")
    try:
        there + elsewhere
    except RuntimeError:
        elsewhere.zero_()
    del elsewhere
    return (there + torch.ones(1024, device="npu:1").to("npu:0")).sum().item()


@correct
def backward_pass_of_two_streams() -> Any:
    weight, side = on_device(2.0).requires_grad_(), side_stream()
    with npu.stream(side):
        doubled = weight * 2
    npu.current_stream().wait_stream(side)
    (doubled * 3).sum().backward()
    return weight.grad.sum().item()


@correct
def graph_is_replayed() -> Any:
    there, graph = on_device(1), npu.NPUGraph()
    with npu.graph(graph):
        result = there * 2
    there.add_(1)
    graph.replay()
    return result.sum().item()


def outcome(program: Callable[..., Any], *right: bool) -> Any:
    try:
        return program(*right)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        npu.synchronize()


def main(which: str) -> None:
    torch.distributed.init_process_group("hccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    if which == "racy":
        found = {name: [outcome(program, right) for right in (False, True)] for name, program in RACY.items()}
    else:
        found = {name: outcome(program) for name, program in CORRECT.items()}
    sys.stdout.write(json.dumps(found) + "\n")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
