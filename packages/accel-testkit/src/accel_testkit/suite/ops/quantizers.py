# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Specs of `quantizer` and `fp_quantizer`: integers and codes in groups, their sums, errors that are fed back.

A quantizer may choose the step of a group within rules. Its integers are compared with the step that it returns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from accel_ops import reference
from accel_testkit.suite.ops.spec import (
    FEWER,
    FLOAT,
    FLOATS,
    MORE,
    NONE,
    SHORTER,
    TYPE,
    Numbers,
    OpSpec,
    Sample,
    Tensor,
    error,
    extremes,
    nothing_yet,
    takes,
    wrong,
)

_QUANTIZER, _FORMATS = "QuantizerBuilder", "FPQuantizerBuilder"
_SYMMETRIC, _ASYMMETRIC = 0, 1
_KINDS = tuple(itertools.product((8, 4), (_SYMMETRIC, _ASYMMETRIC)))
#: The nearest integer of what float32 computes.
_HALF = 0.5 + 1e-3
Errors = dict[str, float]


def _unpacked(data: Tensor, parameters: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return integers, (groups, size), and step and middle of each group, (groups, 1), float64."""
    numbers = parameters.detach().cpu().double().view(parameters.shape[0], -1)
    step, middle = numbers[:, :1], numbers[:, 1:].sum(1, keepdim=True)
    return reference.unpack(data, bits).view(len(step), -1).double(), step, middle


def _quantized(rows: Tensor, bits: int, kind: int, shape: tuple[int, ...], found: list[Tensor]) -> Errors:
    """Compare integers and parameters with the rows, (groups, size), that they are of; shape: of the integers."""
    data, parameters = found[-2:]
    groups, size = rows.shape
    forms = [(each.dtype, tuple(each.shape)) for each in (data, parameters)]
    wanted = [(torch.int8, shape), (torch.float32, (groups, 1 + kind))]
    if forms != wanted:
        return {f"integers and parameters of {forms}, expected {wanted}": wrong(True)}
    if not size:
        return {"parameters of nothing": wrong(not parameters.isfinite().all())}
    integers, step, middle = _unpacked(data, parameters, bits)
    finite = rows.isfinite().all(1)
    seen = (~(integers * step + middle).isfinite()).any(1)
    other = torch.where(finite, seen, ~seen).nonzero().flatten().tolist()
    errors = {f"groups that are finite, or not, and should not be: {other[:8]}": wrong(other)}
    rows, integers, step, middle = (each[finite] for each in (rows, integers, step, middle))
    span = rows.amax(1) - rows.amin(1) if kind else 2 * rows.abs().amax(1)
    usual = span > 1e-30
    limit = 1 << (bits - 1)
    nearest = ((rows - middle) / step).clamp(-limit, limit - 1)[usual]
    errors["the nearest integers"] = error(integers[usual], nearest, _HALF)
    # Where steps are tiny: within one, and zeros are zeros.
    allowed = (span / (2**bits - 2) + 2e-7 * rows.abs().amax(1) + 4e-37)[:, None]
    errors["numbers within a step"] = error(integers * step + middle, rows, allowed)
    errors["zeros of zeros"] = wrong((integers * step + middle)[~rows.any(1)].any())
    ratios = (step.view(-1) * (1 << bits) / span - 1)[usual]
    # An op of a vendor may divide by 2 ** bits - 2, so that the largest number is not cut off: one of both.
    uncut = 1 / 127 if (bits, kind) == (8, _SYMMETRIC) and bool((ratios > 1e-5).all()) else 0.0
    errors["steps: the range by 2 ** bits, or in symmetric int8 by 2 ** bits - 2"] = error(
        ratios, torch.full_like(ratios, uncut), 1e-5
    )
    return errors


def _shifted(new: Numbers, groups: int, width: int) -> Tensor:
    """Groups of numbers of very different size, with ranges that code may take for a number."""
    rows = new.normal(groups, width) + (torch.arange(groups) % 7).view(-1, 1)
    rows = rows * torch.logspace(-2, 1, groups, dtype=torch.float64).view(-1, 1)
    rows[:1], rows[1:2] = torch.linspace(-0.5, 0.5, width).double(), torch.linspace(0, 1, width).double()
    return new.rounded(rows)


def _shaped(new: Numbers, bits: int, kind: int) -> Iterator[tuple[str, Tensor]]:
    """Yield groups: sizes around those of kernels and vendors' ops; 11266 is beyond npu_dynamic_quant's."""
    yield "four groups", new(4, 16)
    shapes = [(5, 2), (5, 6), (5, 8), (5, 250), (24, 64)]
    shapes += [(5, 7)] if bits == 8 else []  # in 8 bits, a row may have any length
    shapes += [(5, 1024), (5, 11266), (2500, 16)] if (bits == 8) != kind else []
    for groups, width in shapes:
        yield f"{groups} groups of {width}", _shifted(new, groups, width)
    spoiled = _shifted(new, 24, 64)
    for group, bad in enumerate((torch.nan, torch.inf, -torch.inf)):
        spoiled[group, 7 * group] = bad
    yield "three groups with an overflow", spoiled


def _rows(new: Numbers, bits: int, kind: int) -> Iterator[tuple[str, Tensor]]:
    """Yield these groups, and such of one number, of extreme numbers and of none."""
    yield from _shaped(new, bits, kind)
    equal = torch.tensor([[0.0], [3.5], [-2.0], [0.0]], dtype=torch.float64).repeat(1, 8)
    yield "groups of one number", new.rounded(equal)
    yield from extremes(new)
    yield "groups of nothing", new(4, 0)


def _packed(shape: tuple[int, ...], bits: int) -> tuple[int, ...]:
    return (*shape[:-1], shape[-1] * bits // 8)


def _quantize(new: Numbers) -> Iterator[Sample]:
    for bits, kind in _KINDS:
        for what, rows in _rows(new, bits, kind):
            arguments = {"input_vals": rows, "groups": len(rows), "num_bits": bits, "quant_type": kind}
            errors = partial(_quantized, rows, bits, kind, _packed(tuple(rows.shape), bits))
            yield Sample(arguments, errors, what=f"{what}, {bits} bits, kind {kind}")
        rows = new(24, 64)
        arguments = {"input_vals": rows.view(4, 6, 64), "groups": 24, "num_bits": bits, "quant_type": kind}
        yield Sample(
            arguments, partial(_quantized, rows, bits, kind, (4, 6, 8 * bits)), what="three dimensions"
        )


def _places(groups: int, pipeline: int, nodes: int, devices: int) -> Tensor:
    """Return which group is at each place of what is sent: in the order (slice, device, node)."""
    return torch.arange(groups).view(nodes, devices, pipeline, -1).permute(2, 1, 0, 3).reshape(-1)


def _swizzled(loco: bool, new: Numbers) -> Iterator[Sample]:
    """Yield calls for each order of what is sent. loco: errors are added, and fed back."""
    for bits, kind in _KINDS:
        rows_of = _shaped if loco else _rows
        cases = [(what, rows, (1, 1, 1)) for what, rows in rows_of(new, bits, kind) if rows.numel()]
        cases[0] = "four groups", cases[0][1], (1, 2, 2)
        for order in ((1, 2, 4), (2, 2, 3), (1, 1, 2), (3, 4, 1)):
            cases.append((f"order {order}", _shifted(new, 24, 64), order))
        for what, rows, order in cases:
            groups, sent, shape = len(rows), rows[_places(len(rows), *order)], (rows.numel() * bits // 8,)
            more = {"groups": groups, "num_bits": bits, "quant_type": kind}
            more |= dict(zip(("pipeline_size", "nodes", "devices_per_node"), order, strict=True))
            before, errors = _fed_or_not(loco, new, sent, 0.8, bits, kind, shape)
            what = f"{what}, {bits} bits, kind {kind}"
            for form in (rows.shape, (-1,), (4, -1, 8)) if what.startswith("order") else (rows.shape,):
                yield Sample({"input_vals": rows.view(form), **before, **more}, errors, what=what)


def _integers(groups: int, size: int, bits: int) -> tuple[Tensor, Tensor]:
    """Return integers of a quantizer, (groups, size), and their bytes."""
    limit = 1 << (bits - 1)
    numbers = (torch.arange(groups * size) * 7 % (2 * limit) - limit).view(groups, size)
    packed = numbers if bits == 8 else (numbers[:, ::2] & 15) | (numbers[:, 1::2] << 4)
    return numbers.double(), packed.to(torch.int8)


def _parameters(groups: int, kind: int, largest: float = 1.0) -> Tensor:
    steps = torch.logspace(-3, 0, groups).mul(largest).view(-1, 1)
    return torch.cat([steps, steps * torch.linspace(-3, 5, groups).view(-1, 1)], 1) if kind else steps


def _dequantize(half: bool, new: Numbers) -> Iterator[Sample]:
    precision = 1e-3 if half else 1e-6
    for (bits, kind), (groups, size) in itertools.product(_KINDS, ((4, 16), (24, 64), (5, 7), (2500, 16))):
        if bits == 4 and size % 2:
            continue
        integers, data = _integers(groups, size, bits)
        # In float16, what is too large for it is infinite, so that the overflow is seen.
        for largest in (1.0, 3e3):
            parameters = _parameters(groups, kind, largest)
            if largest == 1.0 and groups == 24:
                parameters[3], parameters[4] = torch.nan, torch.inf
            _, step, middle = _unpacked(data, parameters, bits)
            wanted = integers * step + middle
            more = {"params": parameters, "groups": groups, "num_bits": bits, "quant_type": kind}
            what = f"{groups} groups of {size}, {bits} bits, kind {kind}, steps up to {largest:g}"
            for shape in ((groups, size), (4, 6, 64)) if groups == 24 else ((groups, size),):
                given = {"quantized_data": data.view(_packed(shape, bits)), **more}
                yield Sample(given, partial(_decoded, wanted, half, shape, precision), what=what)


def _decoded(
    wanted: Tensor, half: bool, shape: tuple[int, ...], precision: float, found: list[Tensor]
) -> Errors:
    kind, one = torch.float16 if half else torch.float32, found[0].detach().cpu()
    form = one.dtype, tuple(one.shape)
    if form != (kind, shape):
        return {f"a result of {form}, expected {(kind, shape)}": wrong(True)}
    largest = wanted.abs().nan_to_num(0.0, 0.0, 0.0).amax(1, keepdim=True)
    one = one.double().reshape(wanted.shape)
    # Around the largest number of float16, either way.
    edge = (wanted.abs() > 65400) & (wanted.abs() < 65600) & half
    given = wanted.to(kind).double().where(~edge, one)
    return {
        "step times integer, plus the middle of the range": error(one, given, precision * largest + 1e-30)
    }


def _reduction(loco: bool, new: Numbers) -> Iterator[Sample]:
    """Yield parts of devices to be summed up. loco: errors are added, and fed back."""
    for bits, kind in _KINDS:
        cases = [((4, 16), 2, 2), ((24, 64), 6, 4), ((24, 96), 8, 3), ((2504, 64), 626, 4)]
        cases += [((24, 64), groups, 2) for groups in (1, 6, 12, 24)]
        for (groups, size), out, devices in cases:
            parameters = _parameters(groups, kind)
            if out == 12:
                parameters[13], parameters[20] = torch.nan, torch.inf
            integers, data = _integers(groups, size, bits)
            yield _reduced(loco, new, integers, data, parameters, out, devices, (bits, kind))
    if loco:
        return
    # A large number that the next device's takes away again leaves what is between them, as a sum in float32 does.
    integers = torch.tensor([127, 1, -127]).repeat_interleave(4).view(12, 1).expand(12, 12)
    integers = integers + (torch.arange(12) % 3 - 1) * (integers.abs() == 1)
    steps = torch.tensor([32.0, 1.0, 32.0]).repeat_interleave(4).view(12, 1)
    data = integers.to(torch.int8).contiguous()
    yield _reduced(loco, new, integers.double(), data, steps, 4, 3, (8, _SYMMETRIC))


def _reduced(
    loco: bool, new: Numbers, integers: Tensor, data: Tensor, parameters: Tensor, out: int, devices: int,
    how: tuple[int, int],
) -> Sample:  # fmt: skip
    _, step, middle = _unpacked(data, parameters, how[0])
    total = (integers * step + middle).view(devices, -1).sum(0).view(out, -1)
    before, errors = _fed_or_not(loco, new, total, 0.3, *how, (len(data), data.shape[1] // devices))
    arguments = {
        "input_vals": data, "input_scales": parameters, **before, "in_groups": len(data), "out_groups": out,
        "num_bits": how[0], "quant_type": how[1], "devices_per_node": devices,
    }  # fmt: skip
    what = f"{len(data)} groups of {devices} devices in {out}, {how[0]} bits, kind {how[1]}"
    return Sample(arguments, errors, what=what)


# ------------------------------------------------------------------------- errors that are fed back


def _fed(
    rows: Tensor,
    before: Tensor,
    beta: float,
    bits: int,
    kind: int,
    shape: tuple[int, ...],
    found: list[Tensor],
) -> Errors:
    """Compare what is sent with rows and former errors, and the new errors with what was not sent."""
    errors = _quantized(rows + before, bits, kind, shape, found[1:])
    integers, step, middle = _unpacked(found[1], found[2], bits)
    sent = (integers * step + middle).view(rows.shape)
    after = before * beta + (1 - beta) * (rows + before - sent)
    # What overflows leaves no error behind: later steps are not spoiled by it.
    after = after.where(rows.isfinite().all(1, keepdim=True), 0.0)
    size = 1e-5 * rows.abs().nan_to_num(0.0, 0.0, 0.0).amax(1, keepdim=True) + 1e-12
    new = found[0].detach().cpu().view(rows.shape) if found[0].numel() == rows.numel() else found[0]
    errors["beta times the errors, plus (1 - beta) times the new ones"] = error(new, after, size)
    return errors


def _fed_or_not(
    loco: bool, new: Numbers, rows: Tensor, beta: float, bits: int, kind: int, shape: tuple[int, ...]
) -> tuple[dict[str, Any], Callable[[list[Tensor]], Errors]]:
    """Return arguments for errors that are fed back, if they are, and the comparison of results with the rows."""
    if not loco:
        return {}, partial(_quantized, rows, bits, kind, shape)
    before = (new.normal(*rows.shape) * 0.01).float()
    errors = partial(_fed, rows, before.double(), beta, bits, kind, shape)
    return {"error_feedback": before.view(-1), "err_beta": beta}, errors


# ------------------------------------------------------------------------------- rounding in place


def _in_place(name: str, new: Numbers) -> Iterator[Sample]:
    for bits, (groups, size) in itertools.product((8, 4), ((4, 16), (24, 64), (5, 7))):
        rows = new.rounded(
            (new.normal(groups, size) + 0.3) * torch.logspace(-1, 1, groups).double().view(-1, 1)
        )

        def errors(found: list[Tensor], rows: Tensor = rows, bits: int = bits) -> Errors:
            step, lowest, highest = reference.grid(rows, bits, name.endswith("asym"))
            one = found[0].detach().cpu().double().view(rows.shape)
            part = 1.01 if "_sr_" in name else _HALF
            allowed = step * part + torch.finfo(new.dtype).eps * rows.abs().amax(1, keepdim=True)
            most = max(len(row.unique()) for row in one)
            return {
                "the nearest": error(one, rows.clamp(lowest, highest), allowed),
                f"{most} numbers in a group": wrong(most > 1 << bits),
            }

        # Groups need not be rows.
        given = rows.view(groups // 4, -1) if groups % 4 == 0 and groups > 4 else rows
        what = f"{groups} groups of {size}, {bits} bits"
        yield Sample({"vals": given, "groups": groups, "bits": bits}, errors, what=what)


def _unsigned(bits: int, new: Numbers) -> Iterator[Sample]:
    for groups, size in ((8, 8), (6, 32)):
        integers = torch.arange(groups * size).mul(7).remainder(1 << bits).view(groups, size)
        minimum = torch.linspace(-2, 3, groups).half()
        scale = torch.tensor([1.0, 2, 4, 8, 0.5, 16, 2, 1])[:groups]
        flat = integers.view(-1)
        data = (flat if bits == 8 else flat[::2] * 16 + flat[1::2]).to(torch.uint8).view(torch.int8)
        wanted = (integers / scale[:, None] + minimum.double()[:, None]).half().view(-1)

        def errors(
            found: list[Tensor], wanted: Tensor = wanted, groups: int = groups, size: int = size
        ) -> Errors:
            one, form = found[0], (found[0].dtype, tuple(found[0].shape))
            if form not in [(torch.float16, shape) for shape in ((groups * size,), (groups, size))]:
                return {f"a result of {form}, expected float16 in rows or flat": wrong(True)}
            return {"integer / scale + minimum": error(one.reshape(-1), wanted, 0.0)}

        for given in (data, data.view(torch.uint8), data.view(2, -1), data[None]):
            arguments = {"data_in": given, "scale_buffer": scale.half(), "min_val_buffer": minimum}
            yield Sample({**arguments, "num_group": groups, "group_size": size}, errors)


# ------------------------------------------------------------------------------------ float formats

#: {(bits, bits of the mantissa): the largest number}; an op of a vendor may end at a smaller one.
LARGEST = {(8, 3): 480.0, (8, 2): 114688.0, (12, 7): 510.0, (6, 2): 28.0, (4, 1): 6.0}
#: To DeepSpeed's kernels, the format that FP_Quantize asks for by 12 bits and a mantissa of 4 is e4m7.
_E4M7 = 12, 4
#: The smallest groups of whole bytes.
_SMALLEST = {8: 1, 12: 2, 6: 4, 4: 2}
_STEP = 4  # bytes


def codes_of(data: Tensor, bits: int) -> Tensor:
    """Return the codes in bytes, flat, of which the first has the lowest bits."""
    flat = (data.detach().cpu().int().view(-1, 1) >> torch.arange(8) & 1).view(-1, bits)
    return (flat * 2 ** torch.arange(bits)).sum(1)


def bytes_of(codes: Tensor, bits: int) -> Tensor:
    """Return the bytes of codes, flat."""
    flat = (codes.view(-1, 1) >> torch.arange(bits) & 1).view(-1, 8)
    return (flat * 2 ** torch.arange(8)).sum(1).to(torch.uint8)


def _numbers_of(data: Tensor, size: int, bits: int, mantissa: int) -> tuple[Tensor, Tensor]:
    """Return the numbers of bytes, (groups, size), and the step of each group, (groups, 1), float64."""
    rows = data.detach().cpu().view(-1, size * bits // 8 + _STEP)
    steps = rows[:, -_STEP:].flatten().clone().view(torch.float32).double().view(-1, 1)
    codes = codes_of(rows[:, :-_STEP].contiguous(), bits).view(len(rows), size)
    return reference.float_numbers(bits, mantissa)[codes] * steps, steps


def _formatted(rows: Tensor, bits: int, mantissa: int, found: list[Tensor]) -> Errors:
    """Compare codes with the rows, (groups, size), that they are of."""
    back, steps = _numbers_of(found[0], rows.shape[1], bits, mantissa)
    finite = rows.isfinite().all(1)
    seen = ~back.isfinite().all(1)
    errors = {"a NaN or an infinity in its group only": wrong(not torch.equal(seen, ~finite))}
    rows, back, steps = rows[finite], back[finite], steps[finite]
    largest = rows.abs().amax(1, keepdim=True)
    # Half of the last place, or of the smallest number, which is a step times a power of two.
    smallest = 2.0 ** (2 - (1 << (bits - mantissa - 2)) - mantissa)
    usual = (largest > 1e-30).flatten()
    allowed = rows.abs() * (2.0 ** -(mantissa + 1) + 1e-6) + steps * smallest
    errors["numbers within half of the last place"] = error(back[usual], rows[usual], allowed[usual])
    most = largest * (4e-3 if bits == 12 else 1e-6)
    errors["the largest of a group"] = error(
        back.abs().amax(1, keepdim=True)[usual], largest[usual], most[usual]
    )
    errors["nearly nothing of nearly nothing"] = error(back[~usual], rows[~usual], 1e-30)
    return errors


def _format_rows(new: Numbers, bits: int) -> Iterator[tuple[str, Tensor]]:
    yield "four groups of 64", new(4, 64)
    for groups, size in ((1, 16), (6, 16), (3, 16), (5, _SMALLEST[bits]), (8, 256)):
        sizes = torch.logspace(-3, 4 if new.dtype != torch.float16 else 3, groups, dtype=torch.float64).view(
            -1, 1
        )
        yield f"{groups} groups of {size}", new.rounded(new.normal(groups, size) * sizes)
    sizes = torch.tensor([1e-6, 0.0, 1e-9, 1.0], dtype=torch.float64).view(4, 1)
    yield "tiny groups", new.rounded(torch.linspace(-1, 1, 64).double().view(4, 16) * sizes)
    spoiled = torch.ones(4, 64, dtype=torch.float64)
    spoiled[0, 3], spoiled[1, 5], spoiled[3] = torch.nan, torch.inf, 1e-42
    yield "overflows", new.rounded(spoiled)
    yield from extremes(new)


def _format_quantize(new: Numbers) -> Iterator[Sample]:
    for bits, mantissa in (*LARGEST, _E4M7):
        for what, rows in _format_rows(new, bits):
            groups, size = rows.shape
            # No zeros: what is not written is seen.
            out = torch.ones(groups, size * bits // 8 + _STEP, dtype=torch.uint8)
            shapes = {"four groups of 64": (2, 128), "6 groups of 16": (2, 3, 16), "3 groups of 16": (48, 1)}
            arguments = {
                "out": out, "val": rows.view(shapes.get(what, rows.shape)), "group_size": size,
                "stochastic_rounding": 0, "q_bits": bits, "q_mantisa_bits": mantissa,
            }  # fmt: skip
            what = f"{what}, {bits} bits, {mantissa} of them mantissa"
            yield Sample(arguments, partial(_formatted, rows, bits, 7 if bits == 12 else mantissa), what=what)


def _all_codes(bits: int, groups: int, size: int) -> Tensor:
    """Return bytes of groups with many codes, and steps of different size behind each."""
    codes = (torch.arange(groups * size) * 37 % (1 << bits)).view(groups, size)
    steps = torch.logspace(-3, 2, groups).view(-1, 1)
    steps[0] = 1.0
    return torch.cat([bytes_of(codes, bits).view(groups, -1), steps.view(torch.uint8)], 1)


def _format_dequantize(new: Numbers) -> Iterator[Sample]:
    for (bits, mantissa), (groups, size) in itertools.product(LARGEST, ((4, 64), (1, 16), (5, 0))):
        size = size or _SMALLEST[bits]
        data = _all_codes(bits, groups, size)
        numbers, _ = _numbers_of(data, size, bits, mantissa)
        how = {"group_size": size, "q_mantisa_bits": mantissa, "q_exponent_bits": bits - mantissa - 1}
        shape = (2, 128) if (groups, size) == (4, 64) else (groups, size)
        for given in (data, data.view(-1)):
            arguments = {"val": nothing_yet(*shape), "val_q": given, **how}
            # Read in float32, and rounded once.
            what = f"{groups} groups of {size}, {bits} bits"
            yield Sample(arguments, [new.rounded(numbers.float()).view(shape)], what=what)


def _format_selected(new: Numbers) -> Iterator[Sample]:
    cases: tuple[tuple[int, list[int], tuple[int, ...]], ...] = (
        (4, [0, 1], (2, 128)), (12, [11, 0, 11], (3, 16)), (12, [2, 2, 0, 1, 3], (5, 48)), (12, [1], (1, 64)),
    )  # fmt: skip
    for (groups, places, shape), kind in itertools.product(cases, (torch.int32, torch.int64)):
        size = 64 if groups == 4 else 16
        parts = groups * size // shape[1]
        data = _all_codes(8, groups, size)
        numbers = _numbers_of(data, size, 8, 3)[0].view(parts, -1)[places]
        arguments = {
            "val": nothing_yet(*shape), "val_q": data, "indexes": torch.tensor(places, dtype=kind), "group_size": size,
            "q_mantisa_bits": 3, "q_exponent_bits": 4,
        }  # fmt: skip
        yield Sample(arguments, [new.rounded(numbers.float())], what=f"{places} of {parts}")


def _scales(new: Numbers) -> Iterator[Sample]:
    steps = torch.tensor([[0.5], [3.0], [1e-20]])
    rows = torch.full((3, 6), 255, dtype=torch.uint8)
    rows[:, :_STEP] = steps.view(torch.uint8)
    for data, count in ((rows[:, :_STEP].contiguous(), 3), (rows, 3), (rows, 2), (rows[:1], 1)):
        yield Sample({"out": data, "num_groups": count}, [steps[:count]], what=f"{count} groups")


#: The quantizer takes any shape.
_ANY_SHAPE = (FEWER, MORE)
_GROUPS: dict[str, Any] = {"groups": {"3": 3, "0": 0, "-4": -4}}
_BITS: dict[str, Any] = {"num_bits": {"5": 5, "16": 16}}
_SCALES = (TYPE, MORE)
_OF_ANY = (TYPE, FLOAT, MORE)
_NO_E4M3: dict[str, Any] = {"group_size": {"0": 0, "48 of 256": 48}, "q_exponent_bits": {"5": 5}}


def _half(*shape: int) -> Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape).half()


def _codes(rows: int, width: int) -> Tensor:
    return torch.ones(rows, width, dtype=torch.uint8)


_of_quantizer = partial(OpSpec, _QUANTIZER, sizes=True, detached=True)
_of_formats = partial(OpSpec, _FORMATS, sizes=True, detached=True)
SPECS = (
    _of_quantizer(
        "quantize", _quantize, numbers=_GROUPS | _BITS,
        together={
            "an odd row in 4 bits": {"input_vals": _half(2, 15), "groups": 1, "num_bits": 4},
            "a row in 7 groups": {"input_vals": _half(64), "groups": 7},
        },
        taken=takes(input_vals=(TYPE, SHORTER, *_ANY_SHAPE)),
    ),
    *(
        _of_quantizer(
            function, partial(_dequantize, half), types=FLOATS[:1],
            numbers={**_GROUPS, **_BITS, "quant_type": {"the other": _ASYMMETRIC}},
            together={"as many parameters again": {"params": torch.ones(8, 1)}},
            taken=takes(quantized_data=(TYPE, SHORTER, *_ANY_SHAPE), params=_SCALES), said="dequantize(_fp32)?",
        )
        for function, half in (("dequantize", True), ("dequantize_fp32", False))
    ),
    _of_quantizer(
        "quantized_reduction", partial(_reduction, False), types=FLOATS[:1],
        numbers={**{name: {"3": 3, "0": 0} for name in ("in_groups", "out_groups", "devices_per_node")}, **_BITS},
        taken=takes(input_vals=(TYPE, *_ANY_SHAPE), input_scales=_SCALES),
    ),
    _of_quantizer(
        "swizzle_quant", partial(_swizzled, False),
        numbers={
            "groups": {"3": 3, "0": 0, "6": 6, "2": 2}, "nodes": {"3": 3, "0": 0}, "devices_per_node": {"0": 0},
            **_BITS,
        },
        together={
            "an odd number in 4 bits": {
                "input_vals": _half(1, 15), "groups": 1, "num_bits": 4, "nodes": 1, "devices_per_node": 1,
            },
        },
        taken=takes(input_vals=(TYPE, SHORTER, NONE, *_ANY_SHAPE)),
    ),
    *(
        _of_quantizer(
            function, partial(_in_place, function), ("vals",), in_place=True, typed=True,
            types=(torch.float32, torch.float16), random="_sr_" in function, numbers={"groups": {"3": 3, "0": 0}},
            taken=takes(vals=(FLOAT, SHORTER, FEWER, MORE)),
        )
        for function in ("ds_quantize", "ds_quantize_asym", "ds_sr_quantize", "ds_sr_quantize_asym")
    ),
    _of_quantizer(
        "loco_swizzle_quant", partial(_swizzled, True), ("error_feedback",),
        numbers={"groups": {"3": 3, "0": 0}, "nodes": {"3": 3, "0": 0}, **_BITS},
        taken=takes(input_vals=_OF_ANY, error_feedback=_OF_ANY),
    ),
    _of_quantizer(
        "loco_quantized_reduction", partial(_reduction, True), ("error_feedback",), types=FLOATS[:1],
        numbers={"in_groups": {"3": 3, "0": 0}, "devices_per_node": {"3": 3, "0": 0}, **_BITS},
        # A row fewer is another number of elements: it is the errors that then do not fit.
        taken=takes(input_vals=(*_OF_ANY, FEWER), input_scales=_OF_ANY, error_feedback=_OF_ANY),
    ),
    *(
        OpSpec(
            _QUANTIZER, f"dequantize_int{bits}_to_half_experimental", partial(_unsigned, bits), types=FLOATS[:1],
            numbers={"num_group": {"4": 4}, "group_size": {"7": 7, "0": 0}},
            taken=takes(data_in=(MORE,), scale_buffer=_OF_ANY, min_val_buffer=_OF_ANY),
            named=frozenset({"data_in", "scale_buffer", "min_val_buffer"}),
            said=r"dequantize_int\S*_to_half_experimental",
        )
        for bits in (8, 4)
    ),
    _of_formats(
        "quantize", _format_quantize, ("out",), in_place=True,
        numbers={
            "group_size": {"0": 0, "negative": -64, "48 of 256": 48}, "q_bits": {"9": 9, "16": 16},
            "q_mantisa_bits": {"7": 7},
        },
        together={
            "groups of no whole bytes": {
                "out": _codes(4, 7), "val": _half(4, 2), "group_size": 1, "q_bits": 12, "q_mantisa_bits": 4,
            },
        },
        taken=takes(val=(FLOAT, MORE)), named=frozenset({"out"}),
    ),
    _of_formats(
        "dequantize", _format_dequantize, ("val",), numbers=_NO_E4M3,
        # The last group need not be full.
        taken=takes(val=(FLOAT, MORE, SHORTER), val_q=(MORE,)), named=frozenset({"val_q"}),
    ),
    _of_formats(
        "selective_dequantize", _format_selected, ("val",), numbers=_NO_E4M3,
        together={
            "no index": {"indexes": torch.zeros(0, dtype=torch.int32)},
            "three indices for four groups": {"indexes": torch.arange(3)},
            "codes of no whole part": {"val_q": _codes(3, 68)},
            "codes of int8": {"val_q": _codes(4, 68).view(torch.int8)},
        },
        # One index, and parts of one group, are right, too.
        taken=takes(val=(FLOAT, MORE, FEWER), val_q=(MORE,), indexes=(SHORTER, FEWER)),
        named=frozenset({"val_q", "indexes"}),
    ),
    _of_formats("get_scales", _scales, types=FLOATS[:1], numbers={"num_groups": {"4 of 3": 4}}),
)  # fmt: skip
