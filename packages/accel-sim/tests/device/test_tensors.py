# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory, storages, views, random numbers; sparse and quantized tensors, rare dtypes, DLPack, layers."""

import io
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

from .conftest import Device, raises, same

accelerator = torch.accelerator


def test_devices_do_not_mix(device: Device) -> None:
    here = torch.ones(2, device=device.type)
    raises(lambda: here + torch.ones(2), RuntimeError, "on the same device")
    raises(lambda: here @ torch.ones(2), RuntimeError, "on the same device")
    host = torch.Generator()
    message = f"Expected a '{device.type}' device type for generator but found 'cpu'"
    raises(lambda: torch.rand(2, device=device.type, generator=host), RuntimeError, message)
    same(here * torch.tensor(2.0), [2.0, 2.0])
    same(here[torch.tensor([1, 0])], [1.0, 1.0])
    raises(lambda: torch.ones(2)[here.long()], RuntimeError, "same device as the indexed tensor")


def test_a_typed_tensor_class_constructs_as_that_of_the_host_does(device: Device) -> None:
    made = getattr(getattr(torch, device.type), "FloatTensor", None)
    if made is None:
        pytest.skip("MPS and XPU have no such classes")
    here = torch.ones(2, device=device.type)
    for arguments in ((), (2, 3), (torch.Size([4]),), ([1, 2],), (((1, 2), (3, 4)),)):
        tensor = made(*arguments)
        assert tensor.shape == torch.FloatTensor(*arguments).shape
        assert (tensor.device, tensor.dtype) == (here.device, torch.float32)
    same(made([1, 2]), [1.0, 2.0])
    assert made(here).data_ptr() == here.data_ptr()
    raises(lambda: made(torch.ones(2)), TypeError, f"device={device.type}")


def test_data_loader_pins(device: Device) -> None:
    for batch in torch.utils.data.DataLoader(torch.arange(8.0), batch_size=4, pin_memory=True):  # type: ignore[arg-type]
        assert batch.is_pinned()


def test_out_arguments(device: Device) -> None:
    out = torch.empty(0, device=device.type)
    torch.add(torch.ones(3, device=device.type), 1, out=out)
    same(out, [2.0, 2.0, 2.0])
    assert out.untyped_storage().nbytes() == 12


def test_storages_resize(device: Device) -> None:
    tensor = torch.ones(4, device=device.type)
    before = accelerator.memory_allocated()
    tensor.untyped_storage().resize_(0)
    assert tensor.untyped_storage().nbytes() == 0
    assert accelerator.memory_allocated() < before
    tensor.untyped_storage().resize_(16)
    same(tensor.fill_(2), [2.0] * 4)
    assert tensor.resize_(8).shape == (8,)


def test_data_is_exchanged(device: Device) -> None:
    parameter, moved = nn.Parameter(torch.ones(2)), torch.ones(2).to(device.type)
    parameter.data = moved
    assert parameter.device == device.first
    assert parameter.data_ptr() == moved.data_ptr()
    other = torch.empty(0, device=device.type)
    take: Any = other.set_
    same(take(moved), moved)
    same(take(moved.untyped_storage(), 0, (2,), (1,)), moved)


def test_modules_keep_their_parameters(device: Device) -> None:
    module = nn.Linear(2, 2)
    weight = module.weight
    module.to(device.type)
    assert module.weight is weight, "module.to() made a new Parameter"


def test_save_and_load(device: Device) -> None:
    tensor = torch.arange(3.0, device=device.type)
    file = io.BytesIO()
    torch.save(tensor, file)
    kept = "cpu" if device.type == "hpu" else device.type  # Habana's torch.save, in lazy mode
    for place, expected in ((None, kept), (device.type, device.type), ("cpu", "cpu")):
        file.seek(0)
        loaded = torch.load(file, map_location=place)
        same(loaded, tensor)
        assert loaded.device.type == expected


def test_type_names(device: Device) -> None:
    name = torch.ones(1, device=device.type).type()
    assert torch.ones(1).type(name).device == device.first


def test_nested_tensors(device: Device) -> None:
    parts = [torch.ones(2, 3), torch.ones(3, 3)]
    torch.nested.nested_tensor(parts, device=device.type).to_padded_tensor(0.0)


def test_integer_histogram(device: Device) -> None:
    numbers = torch.tensor([1, 2, 2, 5], dtype=torch.int32, device=device.type)
    counts = torch.histc(numbers, bins=8, min=0, max=7)
    assert counts.dtype == torch.int32
    same(counts, [0, 1, 2, 0, 0, 1, 0, 0])


def test_half_fft(device: Device) -> None:
    if device.type != "cuda":
        pytest.skip("torch refuses it for the others")
    signal = torch.arange(8.0)
    found = torch.fft.rfft(signal.to(device.type, torch.half))
    assert found.dtype == torch.complex32
    real, expected = (torch.view_as_real(each).float() for each in (found.cpu(), torch.fft.rfft(signal)))
    assert torch.allclose(real, expected, rtol=1e-2)
    back = torch.fft.irfft(found)
    assert back.dtype == torch.half
    assert torch.allclose(back.cpu().float(), signal, atol=1e-2)


def test_dlpack(device: Device) -> None:
    if device.type in ("hpu", "sdaa"):
        pytest.skip("DLPack has no type of hpu; what sdaa does is not known")
    tensor = torch.arange(4.0, device=device.type)
    shared = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))  # type: ignore[attr-defined]
    shared += 1
    assert shared.device == device.first
    same(tensor, [1.0, 2.0, 3.0, 4.0])


def test_attention_without_data(device: Device) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        query = torch.empty(1, 2, 16, 8, device=device.type, requires_grad=True)
        found = nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    assert found.shape == (1, 2, 16, 8)
    assert found.device == device.first


def _generator(place: str) -> Any:
    generator = torch.Generator(place).manual_seed(1)
    draw = partial(torch.rand, 3, device=place, generator=generator)
    first, state, second = draw(), generator.get_state(), draw()
    generator.set_state(state)
    same(draw(), second)
    return (first,)


def _views(place: str) -> Any:
    tensor = torch.arange(12.0, device=place).view(3, 4)
    tensor.t()[1:3].add_(1)
    return tensor, tensor[:, ::2], tensor.unfold(1, 2, 1), tensor.t().reshape(-1), tensor.diag()


def _complex_numbers(place: str) -> Any:
    tensor = torch.tensor([1 + 2j, 3 - 1j]).to(place)
    return tensor.conj().resolve_conj(), tensor.conj() @ tensor, tensor.imag


def _linear_algebra(place: str) -> Any:
    x = torch.randn(3, 3).to(place)
    calls = (torch.linalg.inv, torch.linalg.eigvals, torch.fft.fft, torch.unique, torch.nonzero)
    return *(call(x) for call in calls), x.sort().indices, torch.einsum("ij,jk->ik", x, x)


def _sparse_tensors(place: str) -> Any:
    indices, values = torch.tensor([[0, 2, 2]]), torch.tensor([1.0, 2.0, 3.0])
    made = torch.sparse_coo_tensor(indices, values, (4,), device=place)
    assert made.device.type == place
    doubled = made + made
    assert doubled.coalesce().is_coalesced()
    return doubled.to_dense(), made.cpu().to(place).to_dense()


def _sparse_gradients(place: str) -> Any:
    table: Any = nn.Embedding.from_pretrained(torch.ones(6, 2), freeze=False, sparse=True).to(place)
    for kind in (torch.optim.SparseAdam, torch.optim.SGD):
        optimizer = kind(table.parameters(), 0.1)
        for _ in range(2):  # the second one is added to the first
            table(torch.tensor([1, 2, 2], device=place)).sum().backward()
        assert table.weight.grad.is_sparse
        optimizer.step()
        optimizer.zero_grad()
    return (table.weight.detach(),)


def _quantized_tensors(place: str) -> Any:
    numbers = torch.tensor([-1.0, 0.5, 2.0])
    moved: Any = torch.quantize_per_tensor(numbers, 0.1, 2, torch.qint8).to(place)
    made = torch.quantize_per_tensor(numbers.to(place), 0.1, 2, torch.qint8)
    assert (moved.is_quantized, moved.q_scale()) == (True, 0.1)
    return moved.int_repr(), moved.cpu().dequantize(), made.dequantize()


def _ctc_loss(place: str) -> Any:
    scores = torch.randn(12, 2, 5).to(place).requires_grad_()
    targets = torch.tensor([[1, 2, 3], [4, 1, 1]], device=place)
    lengths = torch.tensor([12, 12]), torch.tensor([3, 2])
    nn.functional.ctc_loss(scores.log_softmax(2), targets, *lengths).backward()
    return (scores.grad,)


def _flexible_attention(place: str) -> Any:
    if place in ("npu", "mlu", "sdaa", "supa", "mps"):
        pytest.skip("torch refuses it for these")
    query = torch.randn(1, 2, 16, 8).to(place)
    return (flex_attention(query, query, query, score_mod=lambda score, *_: score * 0.5),)


def _layers(place: str) -> Any:
    image = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    results = []
    for module, shape in ((image, (2, 3, 8, 8)), (nn.ConvTranspose1d(2, 3, 3), (1, 2, 5))):
        results.append(module.to(place)(torch.randn(shape).to(place)))
        results[-1].sum().backward()
        results += [parameter.grad for parameter in module.parameters()]
    return results


def _attention(place: str) -> Any:
    attend: Any = nn.functional.scaled_dot_product_attention
    given = [torch.randn(1, 2, 8, 4).to(place).requires_grad_() for _ in range(3)]
    causal = attend(*given, is_causal=True)
    causal.sum().backward()
    mask = torch.ones(8, 8, dtype=torch.bool).tril().to(place)
    return causal, *(each.grad for each in given), attend(*given, attn_mask=mask)


COMPUTED = (
    _generator, _views, _complex_numbers, _linear_algebra, _sparse_tensors, _sparse_gradients, _quantized_tensors,
    _ctc_loss, _flexible_attention, _layers, _attention,
)  # fmt: skip


@pytest.mark.parametrize("compute", COMPUTED, ids=lambda compute: compute.__name__)
def test_results_are_those_of_the_cpu(device: Device, compute: Any) -> None:
    torch.manual_seed(3)
    found = compute(device.type)
    torch.manual_seed(3)
    assert found[0].device == device.first
    for here, host in zip(found, compute("cpu"), strict=True):
        same(here, host)
