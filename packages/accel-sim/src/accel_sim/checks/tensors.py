# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory, storages, views, random numbers, streams and pinned memory."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
from torch import nn

from accel_sim.checks import Checks, Device, expect, raises, same

CHECKS = Checks()
accelerator = torch.accelerator


@CHECKS
def factories(d: Device) -> None:
    expect(torch.ones(2, device=d.type).device == d.first)
    for make in (torch.arange, torch.eye, torch.zeros):
        same(make(5, device=d.type), make(5))
    same(torch.linspace(0, 1, 5, device=d.type), torch.linspace(0, 1, 5))
    with torch.device(d.type):
        expect(torch.ones(1).device == d.first)


@CHECKS
def memory_is_counted(d: Device) -> None:
    before = accelerator.memory_allocated()
    tensor = torch.empty(1 << 20, device=d.type)
    expect(accelerator.memory_allocated() == before + (4 << 20))
    del tensor
    expect(accelerator.memory_allocated() == before)
    expect(accelerator.max_memory_allocated() >= before + (4 << 20))
    accelerator.reset_peak_memory_stats()
    expect(accelerator.max_memory_allocated() == before)


@CHECKS
def results_of_operators_are_counted(d: Device) -> None:
    tensor = torch.ones(1 << 20, device=d.type)
    before = accelerator.memory_allocated()
    kept = tensor + 1
    expect(accelerator.memory_allocated() == before + (4 << 20))
    expect(kept[0].item() == 2)


@CHECKS
def memory_runs_out(d: Device) -> None:
    raises(
        lambda: torch.empty(d.memory + 1, dtype=torch.uint8, device=d.type), torch.OutOfMemoryError, "Tried"
    )


@CHECKS
def devices_do_not_mix(d: Device) -> None:
    here = torch.ones(2, device=d.type)
    raises(lambda: here + torch.ones(2), RuntimeError, "on the same device")
    raises(lambda: here @ torch.ones(2), RuntimeError, "on the same device")
    same(here * torch.tensor(2.0), [2.0, 2.0])
    same(here[torch.tensor([1, 0])], [1.0, 1.0])
    raises(lambda: torch.ones(2)[here.long()], RuntimeError, "same device as the indexed tensor")


@CHECKS
def second_device(d: Device) -> None:
    if d.count < 2:
        return
    there = torch.ones(2, device=f"{d.type}:1")
    expect((there + there).device.index == 1)
    same(there.to(d.first), there)
    raises(lambda: there + there.to(d.first), RuntimeError, "on the same device")


@CHECKS
def host_can_not_read(d: Device) -> None:
    raises(lambda: torch.ones(1, device=d.type).numpy(), TypeError)


@CHECKS
def generators_give_the_cpu_numbers(d: Device) -> None:
    here, host = torch.Generator(d.type).manual_seed(1), torch.Generator().manual_seed(1)
    same(torch.rand(3, device=d.type, generator=here), torch.rand(3, generator=host))
    state = here.get_state()
    first = torch.rand(2, device=d.type, generator=here)
    here.set_state(state)
    same(torch.rand(2, device=d.type, generator=here), first)


@CHECKS
def torch_manual_seed(d: Device) -> None:
    torch.manual_seed(5)
    first = torch.randn(3, device=d.type)
    torch.manual_seed(5)
    same(torch.randn(3, device=d.type), first)


@CHECKS
def module_manual_seed(d: Device) -> None:
    def draw() -> torch.Tensor:
        d.module.manual_seed(5)
        return nn.functional.dropout(torch.ones(50, device=d.type))

    same(draw(), draw())


@CHECKS
def fork_rng(d: Device) -> None:
    with torch.random.fork_rng(devices=[0], device_type=d.type):
        first = torch.rand(2, device=d.type)
    same(torch.rand(2, device=d.type), first)


@CHECKS
def pinned_memory(d: Device) -> None:
    pinned = torch.ones(3).pin_memory()
    expect(pinned.is_pinned())
    expect(not torch.ones(3).is_pinned())
    same(pinned.to(d.type, non_blocking=True), pinned)


@CHECKS
def data_loader_pins(d: Device) -> None:
    for batch in torch.utils.data.DataLoader(torch.arange(8.0), batch_size=4, pin_memory=True):  # type: ignore[arg-type]
        expect(batch.is_pinned())


@CHECKS
def streams_and_events(d: Device) -> None:
    stream: Any = torch.Stream(d.type)
    event: Any = torch.Event(d.type, enable_timing=True)
    event.record(stream)
    stream.wait_event(event)
    event.synchronize()
    expect(event.query())
    tensor: Any = torch.ones(1, device=d.type)
    tensor.record_stream(stream)
    accelerator.synchronize()


@CHECKS
def views(d: Device) -> None:
    tensor = torch.arange(12.0, device=d.type).view(3, 4)
    tensor.t()[1:3].add_(1)
    expect(tensor[0, 1].item() == 2)
    cuts: tuple[Any, ...] = (
        lambda t: t[:, ::2],
        lambda t: t.unfold(1, 2, 1),
        lambda t: t.t().reshape(-1),
        lambda t: t.diag(),
    )
    for view in cuts:
        same(view(tensor), view(tensor.cpu()))


@CHECKS
def out_arguments(d: Device) -> None:
    out = torch.empty(0, device=d.type)
    torch.add(torch.ones(3, device=d.type), 1, out=out)
    same(out, [2.0, 2.0, 2.0])
    expect(out.untyped_storage().nbytes() == 12)


@CHECKS
def storages_resize(d: Device) -> None:
    tensor = torch.ones(4, device=d.type)
    before = accelerator.memory_allocated()
    tensor.untyped_storage().resize_(0)
    expect(tensor.untyped_storage().nbytes() == 0)
    expect(accelerator.memory_allocated() < before)
    tensor.untyped_storage().resize_(16)
    same(tensor.fill_(2), [2.0] * 4)
    expect(tensor.resize_(8).shape == (8,))


@CHECKS
def data_is_exchanged(d: Device) -> None:
    parameter, moved = nn.Parameter(torch.ones(2)), torch.ones(2).to(d.type)
    parameter.data = moved
    expect(parameter.device == d.first)
    expect(parameter.data_ptr() == moved.data_ptr())
    other = torch.empty(0, device=d.type)
    take: Any = other.set_
    same(take(moved), moved)
    same(take(moved.untyped_storage(), 0, (2,), (1,)), moved)


@CHECKS
def modules_keep_their_parameters(d: Device) -> None:
    module = nn.Linear(2, 2)
    weight = module.weight
    module.to(d.type)
    expect(module.weight is weight, "module.to() made a new Parameter")


@CHECKS
def indexing(d: Device) -> None:
    tensor = torch.arange(6.0, device=d.type)
    same(tensor[torch.tensor([1, 3])], [1.0, 3.0])
    tensor[torch.tensor([0], device=d.type)] = 9
    tensor[tensor > 4] = 0
    same(tensor, [0.0, 1, 2, 3, 4, 0])


@CHECKS
def save_and_load(d: Device) -> None:
    tensor = torch.arange(3.0, device=d.type)
    file = io.BytesIO()
    torch.save(tensor, file)
    for place, expected in ((None, d.type), (d.type, d.type), ("cpu", "cpu")):
        file.seek(0)
        loaded = torch.load(file, map_location=place)
        same(loaded, tensor)
        expect(loaded.device.type == expected)


@CHECKS
def copies_and_pickles(d: Device) -> None:
    tensor = torch.arange(3.0, device=d.type)
    same(copy.deepcopy(tensor), tensor)
    same(pickle.loads(pickle.dumps(tensor)), tensor)


@CHECKS
def complex_numbers(d: Device) -> None:
    tensor = torch.tensor([1 + 2j, 3 - 1j])
    here = tensor.to(d.type)
    same(here.conj().resolve_conj(), tensor.conj().resolve_conj())
    same(here.conj() @ here, tensor.conj() @ tensor)
    same(here.imag, tensor.imag)


@CHECKS
def type_names(d: Device) -> None:
    name = torch.ones(1, device=d.type).type()
    expect(torch.ones(1).type(name).device == d.first)
