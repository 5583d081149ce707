# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op quantizer: integers and parameters of ZeRO++ beside float64; every group, layout and extreme; error feedback."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_ops import reference
from accel_testkit.suite.expect import Holds, expect_equal
from accel_testkit.suite.ops import normal

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("QuantizerBuilder")]

_DO = "compare it with `accel_ops.quantizer`"
_KINDS = [(kind, bits) for kind in ("Symmetric", "Asymmetric") for bits in (8, 4)]
_GROUPS, _WIDTH = 24, 64
#: (pipeline, nodes, devices): of the product there are multiples in the groups.
_ORDERS = [(1, 2, 4), (2, 2, 3), (1, 1, 2), (3, 4, 1)]
#: Of an integer that is the nearest one.
_HALF = 0.5 + 1e-3


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_integers_are_rounded_to_nearest(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, kind: str, bits: int
) -> None:
    """`quantize` gives the nearest integer, by the parameters beside it, and `dequantize` the number back."""
    holds, chosen, limit = Holds(), getattr(op, kind), 1 << (bits - 1)
    taken = {torch.float16, *accelerator.supported_dtypes()}
    for dtype in {torch.float16, torch.bfloat16, torch.float32} & taken:
        rows = _wide(dtype)
        pair = op.quantize(rows.to(device), _GROUPS, bits, chosen)
        rows, (step, middle), integers = rows.double(), _step(pair[1]), _unpacked(pair[0], bits)
        exact = ((rows - middle) / step).clamp(-limit, limit - 1)
        holds.near(f"the nearest integers of {dtype}", integers, exact, _HALF)
        span = rows.amax(1) - rows.amin(1) if kind == "Asymmetric" else 2 * rows.abs().amax(1)
        steps = step.view(-1) * (1 << bits) / span - 1
        # An op of a vendor may divide by 2 ** bits - 2, so that the largest number is not cut off: one of both.
        uncut = 1 / 127 if (kind, bits) == ("Symmetric", 8) and (steps > 1e-5).all() else 0.0
        what = f"steps of {dtype}: the range of the group by 2 ** bits, or in symmetric int8 all by 2 ** bits - 2"
        holds.near(what, steps, torch.full_like(steps, uncut), 1e-5)
        largest = rows.abs().amax(1, keepdim=True)
        for name, precision in (("dequantize", 1e-3), ("dequantize_fp32", 1e-6)):
            back = getattr(op, name)(*pair, _GROUPS, bits, chosen)
            kept = torch.float16 if name == "dequantize" else torch.float32
            holds.equal(f"the type of {name}", back.dtype, kept)
            what = f"{name} of {dtype}: step times integer, plus the middle of the range"
            holds.near(what, back.view(_GROUPS, _WIDTH), integers * step + middle, precision * largest)
    do = "round to the nearest, ties to even, and limit to what the bits hold"
    holds.expect("quantize or dequantize", do)


@pytest.mark.parametrize("order", _ORDERS, ids=str)
def test_groups_are_sent_to_their_devices(op: Any, device: torch.device, order: Any) -> None:
    """`swizzle_quant` is `quantize` with the groups in the order (slice, device, node); the sum is over devices."""
    (pipeline, nodes, devices), holds = order, Holds()
    rows = _wide(torch.float16).to(device)
    for form, bits in itertools.product((rows.view(-1), rows.view(4, -1, 8)), (4, 8)):
        sent = [op.swizzle_quant(given, _GROUPS, bits, op.Symmetric, *order) for given in (rows, form)]
        same = all(torch.equal(a.view(-1), b.view(-1)) for a, b in zip(*sent, strict=True))
        holds[f"shape {tuple(form.shape)} in {bits} bits: groups are taken in the order of memory"] = same
    data, parameters = op.swizzle_quant(rows, _GROUPS, 4, op.Symmetric, *order)
    plain, steps = (each.cpu() for each in op.quantize(rows, _GROUPS, 4, op.Symmetric))
    places = torch.arange(_GROUPS).view(nodes, devices, pipeline, -1).permute(2, 1, 0, 3).reshape(-1)
    holds.same("groups by slice, then device, then node", data, plain.view(_GROUPS, -1)[places].reshape(-1))
    holds.same("their parameters", parameters, steps[places])
    out = _GROUPS // devices
    parts = _unpacked(data, 4) * parameters.cpu().double()
    reduced, step = op.quantized_reduction(data, parameters, _GROUPS, out, 4, op.Symmetric, devices)
    exact = (parts.view(devices, out, _WIDTH).sum(0) / step.cpu().double()).clamp(-8, 7)
    holds.near("quantized_reduction: the sum of the devices' parts", _unpacked(reduced, 4), exact, _HALF)
    what = f"swizzle_quant for pipeline, nodes, devices = {order}"
    holds.expect(what, "compare the order with `accel_ops.quantizer.swizzle`")


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_overflow_stays_visible(op: Any, device: torch.device, kind: str, bits: int) -> None:
    """A group with a NaN or an infinity is not finite after `dequantize`; other groups are as without it."""
    rows = _wide(torch.float16)
    for group, bad in enumerate((float("nan"), float("inf"), float("-inf"))):
        rows[group, 7 * group] = bad
    pair = op.quantize(rows.to(device), _GROUPS, bits, getattr(op, kind))
    back = op.dequantize(*pair, _GROUPS, bits, getattr(op, kind)).cpu().view(_GROUPS, _WIDTH)
    finite = [group for group, row in enumerate(back) if row.isfinite().all()]
    do = "make the parameter of a group with a NaN or an infinity NaN or infinite"
    expect_equal("which groups are finite, where the first three overflow,", finite, [*range(3, _GROUPS)], do)


def _wide(dtype: torch.dtype) -> torch.Tensor:
    rows = normal(_GROUPS, _WIDTH, seed=17)
    return (rows * torch.logspace(-2, 2, _GROUPS).view(-1, 1) + 0.3).to(dtype)


def _step(parameters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return step and middle of each group in float64."""
    numbers = parameters.cpu().double().view(_GROUPS, -1)
    step = numbers[:, :1]
    return step, numbers[:, 1:] if numbers.shape[1] == 2 else torch.zeros_like(step)


def _unpacked(data: torch.Tensor, bits: int) -> torch.Tensor:
    return reference.unpack(data, bits).view(-1, _WIDTH)


#: Groups and their sizes around those that kernels and vendors' ops take; 11266 is beyond npu_dynamic_quant's.
_SHAPES = ((5, 2), (5, 6), (5, 8), (5, 250), (5, 1024), (5, 11266), (2500, 16))
_FUNCTIONS = ("quantize", "swizzle_quant", "loco_swizzle_quant")


def _shifted(groups: int, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    rows = normal(groups, width, seed=89) + (torch.arange(groups) % 7).view(-1, 1)
    rows *= torch.logspace(-2, 1, groups).view(-1, 1)
    # Ranges that are a number which code may take for another.
    rows[0], rows[1] = torch.linspace(-0.5, 0.5, width), torch.linspace(0, 1, width)
    return rows.to(dtype)


def _call(op: Any, name: str, rows: torch.Tensor, bits: int, kind: str) -> Any:
    groups, chosen = rows.shape[0], getattr(op, kind)
    if name == "quantize":
        return op.quantize(rows, groups, bits, chosen)
    if name == "swizzle_quant":
        return op.swizzle_quant(rows, groups, bits, chosen, 1, 1, 1)
    error = torch.zeros_like(rows, dtype=torch.float32)
    return op.loco_swizzle_quant(rows, error, 0.5, groups, bits, chosen, 1, 1, 1)


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
@pytest.mark.parametrize("name", _FUNCTIONS)
def test_numbers_come_back_within_a_step(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, name: str, kind: str, bits: int
) -> None:
    """In groups of every size, number and type: half a step beside the number, or beside the end that is cut off."""
    holds, chosen = Holds(), getattr(op, kind)
    for dtype in {torch.float32, *accelerator.supported_dtypes()}:
        # In 8 bits, a row may have any length.
        for groups, width in (*_SHAPES, *([(5, 7)] if bits == 8 else [])):
            rows = _shifted(groups, width, dtype)
            exact, case = rows.double(), f"{dtype} in {groups} groups of {width}"
            data, parameters = _call(op, name, rows.to(device), bits, kind)
            back = op.dequantize_fp32(data.view(groups, -1), parameters, groups, bits, chosen)
            step = parameters.cpu().double()[:, :1]
            middle = (exact.amax(1, keepdim=True) + exact.amin(1, keepdim=True)) / 2 * (kind == "Asymmetric")
            nearest = ((exact - middle) / step).clamp(-(1 << bits - 1), (1 << bits - 1) - 1) * step + middle
            holds.near(f"{case}: within half a step", back, nearest, 0.51 * step)
            layout = (data.dtype, data.numel(), parameters.dtype, tuple(parameters.shape))
            shape = groups, 1 + (kind == "Asymmetric")
            wanted = (torch.int8, rows.numel() * bits // 8, torch.float32, shape)
            holds.equal(f"{case}: bytes and parameters", layout, wanted)
            holds[f"{case}: contiguous"] = data.is_contiguous() and parameters.is_contiguous()
            holds[f"{case}: flat"] = name == "quantize" or data.dim() == 1
    holds.expect(f"{name} of the quantizer", _DO)


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_groups_of_one_number_are_exact(op: Any, device: torch.device, kind: str, bits: int) -> None:
    """Zeros come back as zeros, the asymmetric kind keeps a number that all of a group are; empty groups stay so."""
    rows = torch.tensor([0.0, 3.5, -2.0, 0.0]).view(4, 1).repeat(1, 8)
    data, parameters = op.quantize(rows.to(device), 4, bits, getattr(op, kind))
    back = op.dequantize_fp32(data, parameters, 4, bits, getattr(op, kind)).cpu()
    none, shape = op.quantize(rows[:, :0].to(device), 4, bits, getattr(op, kind)), (4, 0)
    apart = (back - rows).abs().amax(1) / torch.tensor([1.0, 3.5, 2.0, 1.0])
    most = 1e-6 if kind == "Asymmetric" else 1.01 / (1 << bits - 1)
    holds = Holds({"zeros of zeros": not back[0].any() and not back[3].any()})
    holds["a step at most of equal numbers"] = float(apart.max()) <= most
    holds["a group without numbers"] = tuple(none[0].shape) == shape and none[1].shape[0] == 4
    holds["finite parameters"] = parameters.isfinite().all() and none[1].isfinite().all()
    holds.expect("quantize()", _DO)


def test_sums_of_devices_are_of_float32(op: Any, device: torch.device) -> None:
    """A large number that the next device's takes away again leaves what is between them, as a sum in float32 does."""
    parts = torch.zeros(3, 4, 12)
    parts[0], parts[1], parts[2] = 4096.0, 1.0, -4096.0
    rows = parts.view(12, 12).to(device)
    pair = op.quantize(rows, 12, 8, op.Symmetric)
    exact = op.dequantize_fp32(*pair, 12, 8, op.Symmetric).cpu().view(3, -1).double().sum(0)
    data, steps = op.quantized_reduction(*pair, 12, 4, 8, op.Symmetric, 3)
    found = op.dequantize_fp32(data, steps, 4, 8, op.Symmetric).cpu().view(-1).double()
    holds = Holds()
    holds["the sum of 4096, 1 and -4096"] = bool(((found - exact).abs() <= 0.05).all())
    holds.expect("quantized_reduction", "sum in float32, and quantize the sum")


def test_sums_pass_overflows_on(op: Any, device: torch.device) -> None:
    """What is not finite on one device is not finite in the sum: training then skips the step."""
    holds = Holds()
    for number in (torch.nan, torch.inf):
        rows = torch.ones(8, 16)
        rows[5, 3] = number  # of the second of two devices, in the second of its groups
        pair = op.quantize(rows.to(device), 8, 8, op.Symmetric)
        pair = op.quantized_reduction(*pair, 8, 4, 8, op.Symmetric, 2)
        groups = op.dequantize_fp32(*pair, 4, 8, op.Symmetric).cpu().view(4, 16)
        finite = groups.isfinite().all(1).tolist()
        holds[f"{number} in one group, finite {finite}"] = finite == [True, False, True, True]
    holds.expect("quantized_reduction of what is not finite", "let NaN and infinity through")


def test_numbers_of_bfloat16_keep_their_range(op: Any, device: torch.device) -> None:
    """Groups of bfloat16 numbers that float16 does not hold, huge and tiny, come back, or the type is refused."""
    rows = (torch.linspace(-1, 1, 64).view(4, 16) * torch.tensor([1e30, 1e6, 1.0, 0.1]).view(4, 1)).bfloat16()
    try:
        pair = op.quantize(rows.to(device), 4, 8, op.Symmetric)
    except Exception:
        pytest.skip("the op takes no bfloat16")
    back, holds = op.dequantize_fp32(*pair, 4, 8, op.Symmetric).cpu().view(rows.shape), Holds()
    step = 2 * rows.float().abs().amax(1, keepdim=True) / 254 * 1.01
    near = ((back - rows.float()).abs() <= step).all(1).tolist()
    holds[f"groups of up to 1e30, 1e6, 1 and 0.1, found {near}"] = all(near)
    holds.expect("quantize of bfloat16", "convert to float32 before the range of a group is looked for")


def test_numbers_beyond_half_are_infinite(op: Any, device: torch.device) -> None:
    """What `dequantize` makes of numbers that float16 cannot hold is infinite, so that the overflow is seen."""
    rows, holds = torch.full((2, 8), 3e5), Holds()
    rows[1] = torch.tensor([1.0, -3e5] * 4)
    for kind, bits in _KINDS:
        pair = op.quantize(rows.to(device), 2, bits, getattr(op, kind))
        wide = op.dequantize_fp32(*pair, 2, bits, getattr(op, kind)).cpu().view(2, 8)
        half = op.dequantize(*pair, 2, bits, getattr(op, kind)).cpu().view(2, 8)
        holds[f"{kind} in {bits} bits"] = torch.equal(half.float(), wide.half().float())
    holds["300,000 is too large for float16"] = not wide.half().isfinite().all()
    holds.expect("dequantize of large numbers", "convert to float16 as torch does; do not saturate")


def test_stochastic_rounding_follows_the_device_s_seed(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device
) -> None:
    """The same seed of the device gives the same numbers; the host's generator is neither read nor moved."""
    holds, rows = Holds(), torch.rand(4, 512, generator=torch.Generator().manual_seed(7)).to(device)
    for name in ("ds_sr_quantize_fp32", "ds_sr_quantize_asym_fp32"):
        found = []
        for host in (5, 6):
            torch.manual_seed(host)
            accelerator.manual_seed(1234)
            state = torch.get_rng_state()
            found.append(getattr(op, name)(rows.clone(), 4, 4).cpu())
            alone = torch.equal(state, torch.get_rng_state())
            holds[f"{name} leaves the host's generator alone ({host})"] = alone or device.type == "cpu"
        other = getattr(op, name)(rows.clone(), 4, 4).cpu()
        holds[f"{name} is repeated by a seed"] = torch.equal(found[0], found[1])
        holds[f"{name} goes on in its sequence"] = not torch.equal(found[1], other)
    holds.expect("stochastic rounding", "draw from the device's default generator")


_SUFFIXES = {torch.float32: "fp32", torch.float16: "fp16"}


def _rows(groups: int = _GROUPS, seed: int = 19) -> torch.Tensor:
    return (normal(groups, _WIDTH, seed=seed) + 0.3) * torch.logspace(-1, 1, groups).view(-1, 1)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", ["ds_quantize", "ds_quantize_asym"])
def test_numbers_are_rounded_in_place(op: Any, device: torch.device, name: str, bits: int) -> None:
    """Each number becomes the nearest of its group's 2 ** bits numbers, in the tensor that is given and returned."""
    holds = Holds()
    for dtype, suffix in _SUFFIXES.items():
        rows = _rows().to(dtype)
        ours = rows.to(device, copy=True).view(_GROUPS // 4, -1)  # groups need not be rows
        result = getattr(op, f"{name}_{suffix}")(ours, _GROUPS, bits)
        exact, found = rows.double(), ours.cpu().view(rows.shape)
        step, lowest, highest = reference.grid(exact, bits, name.endswith("asym"))
        rounding = torch.finfo(dtype).eps * exact.abs().amax(1, keepdim=True)
        allowed = step * _HALF + rounding
        holds.near(f"the nearest of {suffix}", found, exact.clamp(lowest, highest), allowed)
        holds[f"{1 << bits} of {suffix} in a group"] = max(len(row.unique()) for row in found) <= 1 << bits
        holds[f"{suffix} in place"] = result.data_ptr() == ours.data_ptr()
    holds.expect(f"{name} in {bits} bits", _DO)


@pytest.mark.parametrize("name", ["ds_sr_quantize", "ds_sr_quantize_asym"])
def test_stochastic_rounding_has_no_bias(op: Any, device: torch.device, name: str) -> None:
    """A number between two becomes either, as often as it is near; the same number not always the same."""
    asymmetric, holds = name.endswith("asym"), Holds()
    for dtype, suffix in _SUFFIXES.items():
        rows = torch.full((2, 4096), 0.3).to(dtype)
        rows[:, 0], rows[:, 1] = (-4.0, 12.0) if asymmetric else (-8.0, 5.0)
        rows[1, 2:] = -2.6
        ours = rows.to(device, copy=True)
        getattr(op, f"{name}_{suffix}")(ours, 2, 4)
        found, exact = ours.cpu().double()[:, 2:], rows.double()[:, 2:]
        step = float(reference.grid(rows.double(), 4, asymmetric)[0][0])
        holds.near(f"the mean of {suffix}", found.mean(1), exact.mean(1), 0.05 * step)
        holds.near(f"one of the two numbers around, of {suffix}", found, exact, 1.01 * step)
        holds.equal(f"results of one number of {suffix}", {len(row.unique()) for row in found}, {2})
    holds.expect(name, _DO)


@pytest.mark.parametrize("bits", [8, 4])
def test_unsigned_integers_are_numbers(op: Any, device: torch.device, bits: int) -> None:
    """`dequantize_int*_to_half_experimental` is integer / scale + minimum; of two in a byte the first is high."""
    integers = torch.randint(0, 1 << bits, (6, 32), generator=torch.Generator().manual_seed(3))
    scale, minimum = torch.tensor([1.0, 2, 4, 8, 0.5, 16]), torch.tensor([0.0, -1, 3, 0.25, -8, 2])
    flat = integers.view(-1)
    data = (flat if bits == 8 else flat[::2] * 16 + flat[1::2]).to(torch.uint8).to(device)
    buffers = [buffer.half().to(device) for buffer in (scale, minimum)]
    function = getattr(op, f"dequantize_int{bits}_to_half_experimental")
    wanted, shapes, holds = (integers / scale[:, None] + minimum[:, None]).half().view(-1), set(), Holds()
    for given in (data, data.view(torch.int8).view(6, -1), data[None]):
        found = function(given, *buffers, 6, 32)
        shapes.add(found.shape)
        holds.same(f"integer / scale + minimum, of bytes {tuple(given.shape)}", found.view(-1), wanted)
    holds[f"one shape, whatever that of the bytes: {shapes}"] = len(shapes) == 1
    holds.expect(function.__name__, _DO)


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_errors_are_fed_back(op: Any, device: torch.device, kind: str, bits: int) -> None:
    """`loco_*` send numbers and former errors, in the order of `swizzle_quant`, and keep each group's new errors."""
    holds, chosen = Holds(), getattr(op, kind)

    def feed(name: str, given: Any, beta: float, more: Any, rows: torch.Tensor) -> None:
        """Send `rows` with the errors of former steps, and compare what arrives and what the errors become."""
        groups, size = rows.shape[0], 1e-5 * rows.abs().amax(1, keepdim=True)
        before = _rows(groups, seed=23).to(device) * 0.01
        error = before.clone().view(-1)
        data, parameters = getattr(op, name)(*given, error, beta, *more)
        found = op.dequantize_fp32(data.view(groups, -1), parameters, groups, bits, chosen)
        pair = op.quantize(rows + before, groups, bits, chosen)
        sent = op.dequantize_fp32(*pair, groups, bits, chosen).view(rows.shape)
        after = before * beta + (1 - beta) * (rows + before - sent)
        holds.near(f"{name} of {groups} groups: the sums, quantized", found.view(rows.shape), sent, size)
        what = f"{name} of {groups} groups: beta times the errors, plus (1 - beta) times the new ones"
        holds.near(what, error.view(rows.shape), after, size)

    for groups in (_GROUPS, 2504):
        rows = _rows(groups).to(device)
        places = torch.arange(groups).view(2, 4, 1, -1).permute(2, 1, 0, 3).reshape(-1).to(device)
        feed("loco_swizzle_quant", (rows,), 0.8, (groups, bits, chosen, 1, 2, 4), rows[places])
        pair = op.quantize(rows, groups, bits, chosen)
        total = op.dequantize_fp32(*pair, groups, bits, chosen).view(4, groups // 4, _WIDTH).sum(0)
        feed("loco_quantized_reduction", pair, 0.3, (groups, groups // 4, bits, chosen, 4), total)
    holds.expect("the feedback of errors", _DO)


@pytest.mark.parametrize("bits", [8, 4])
def test_float16_errors_complete_what_is_sent(op: Any, device: torch.device, bits: int) -> None:
    """Of float16 numbers and errors, what a receiver decodes plus the new error is their float16 sum, to the last bit.

    Source: DeepSpeed's unit test TestLocoQuantized, which asks for 1e-5.
    """
    rows, before, holds = _rows().half(), (_rows(seed=23) * 0.1).half(), Holds()
    error = before.to(device, copy=True).view(-1)
    pair = op.loco_swizzle_quant(rows.to(device), error, 0.0, _GROUPS, bits, op.Symmetric, 1, 1, 1)
    back = op.dequantize(*pair, _GROUPS, bits, op.Symmetric).cpu().view(rows.shape)
    holds.same("of loco_swizzle_quant", back + error.cpu().view(rows.shape), rows + before)
    sums = op.quantize(rows.to(device), _GROUPS, bits, op.Symmetric)
    first, *others = op.dequantize(*sums, _GROUPS, bits, op.Symmetric).cpu().view(4, -1)
    for other in others:
        first = first + other
    before = before.view(4, -1)[0]
    error = before.to(device, copy=True)
    pair = op.loco_quantized_reduction(*sums, error, 0.0, _GROUPS, _GROUPS // 4, bits, op.Symmetric, 4)
    back = op.dequantize(*pair, _GROUPS // 4, bits, op.Symmetric).cpu().view(-1)
    holds.same("of loco_quantized_reduction", back + error.cpu(), first + before)
    holds.expect("decoded numbers plus new errors, in float16,", _DO)


@pytest.mark.parametrize("bits", [8, 4])
def test_sums_are_quantized_in_any_groups(op: Any, device: torch.device, bits: int) -> None:
    """`quantized_reduction` has as many steps as `out_groups`, whatever the groups of its parts, and they fit."""
    pair, holds = op.quantize(_rows().to(device), _GROUPS, bits, op.Symmetric), Holds()
    total = op.dequantize_fp32(*pair, _GROUPS, bits, op.Symmetric).view(2, -1).sum(0).cpu().double()
    for groups in (1, _GROUPS // 4, _GROUPS // 2, _GROUPS):
        data, steps = op.quantized_reduction(*pair, _GROUPS, groups, bits, op.Symmetric, 2)
        back = op.dequantize_fp32(data, steps, groups, bits, op.Symmetric).view(groups, -1)
        wanted = total.view(groups, -1)
        # The largest may be cut off by a step.
        allowed = 1.02 * wanted.abs().amax(1, keepdim=True) / 2 ** (bits - 1)
        holds.near(f"sums in {groups} groups", back, wanted, allowed)
        holds.equal(f"how many steps {groups} groups have", steps.shape[0], groups)
    holds.expect("quantized_reduction", _DO)


def test_errors_stay_finite(op: Any, device: torch.device) -> None:
    """A NaN is sent, so that the overflow is seen, and leaves no error behind: later steps are not spoiled by it."""
    rows, holds = _rows().to(device), Holds()
    rows[3, 5] = torch.nan
    error = torch.full_like(rows, 0.01).view(-1)
    op.loco_swizzle_quant(rows, error, 0.5, _GROUPS, 8, op.Symmetric, 1, 1, 1)
    errors = error.view(_GROUPS, _WIDTH).cpu()
    holds["all are finite"] = errors.isfinite().all()
    holds[f"zeros in the group with the NaN: {errors[3, :3].tolist()}"] = not errors[3].any()
    holds["and there only"] = errors[4].any()
    holds.expect("the errors of loco_swizzle_quant", _DO)


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_shapes_are_kept(op: Any, device: torch.device, kind: str, bits: int) -> None:
    """Tensors of any rank keep their shape, but for the last dimension; inputs stay, and nothing is differentiable."""
    holds, how, packed = Holds(), (bits, getattr(op, kind)), _WIDTH * bits // 8
    for dtype in _SUFFIXES:
        rows = _rows().view(4, 6, _WIDTH).to(dtype)
        values = rows.to(device).requires_grad_()
        pair = op.quantize(values, _GROUPS, *how)
        back, half = op.dequantize_fp32(*pair, _GROUPS, *how), op.dequantize(*pair, _GROUPS, *how)
        reduced = op.quantized_reduction(*pair, _GROUPS, 12, *how, 2)
        error = torch.zeros(rows.numel() // 2, device=device, requires_grad=True)
        fed = op.loco_quantized_reduction(*pair, error, 0.5, _GROUPS, 12, *how, 2)
        shapes = [tuple(tensor.shape) for tensor in (pair[0], back, half, reduced[0], fed[0])]
        wanted = [(4, 6, packed), *[(4, 6, _WIDTH)] * 2, *[(4, 6, packed // 2)] * 2]
        holds.equal(f"shapes of {dtype}", shapes, wanted)
        holds.same(f"the input of {dtype} stays", values, rows)
        results = (*pair, back, half, *reduced, *fed)
        holds[f"{dtype} without a history"] = not any(tensor.requires_grad for tensor in results)
    holds.expect("quantize, dequantize, dequantize_fp32 or a reduction", _DO)
