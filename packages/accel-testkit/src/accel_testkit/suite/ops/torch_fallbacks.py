# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Specs of ops in plain torch: dropped tokens, sums with biases, packed signs, attention with biases of pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from accel_testkit.suite.ops.spec import (
    FEWER,
    FLOAT,
    FLOATS,
    MORE,
    SHORTER,
    TYPE,
    Allowed,
    Numbers,
    OpSpec,
    Sample,
    Tensor,
    error,
    nothing_yet,
    once,
    takes,
)

_LTD, _SPATIAL, _PACKBITS, _EVOFORMER = (
    "RandomLTDBuilder", "SpatialInferenceBuilder", "PackbitsBuilder", "EvoformerAttnBuilder"
)  # fmt: skip
_TOKENS = torch.tensor([[0, 6], [2, 3], [1, 5]])
_INDICES = (torch.int32, torch.int64)

# ---------------------------------------------------------------------------------- dropped tokens


def _sorted(new: Numbers) -> Iterator[Sample]:
    ids = torch.tensor([[[3, 1, 2], [7, 0, 5]], [[9, 8, 0], [2, 1, 1]]])
    many = torch.randperm(5000, generator=torch.Generator().manual_seed(9))[:4100].view(2, 1, -1)
    for (given, count), kind in itertools.product(((ids, 10), (many, 5000)), _INDICES):
        arguments = {"unsorted_token_ids": given.to(kind), "original_tokens": count}
        yield Sample(arguments, [given.sort(-1).values.to(kind)], what=f"{count} of {kind}")


def _turned(tensor: Tensor, batch_first: bool) -> Tensor:
    return tensor if batch_first else tensor.transpose(0, 1).contiguous()


def _kept(new: Numbers) -> Iterator[tuple[Tensor, Tensor, Tensor, bool]]:
    """Yield tokens, indices, where they are in the tokens, and whether the batch is first."""
    for kind, first in itertools.product(_INDICES, (True, False)):
        yield new(3, 7, 4, times=8), _TOKENS.to(kind), _TOKENS.unsqueeze(-1).expand(-1, -1, 4), first


def _gathered(new: Numbers) -> Iterator[Sample]:
    for rows, index, places, first in _kept(new):
        arguments = {"activations": _turned(rows, first), "sorted_indices": index, "batch_first": first}
        yield Sample(arguments, [_turned(rows.gather(1, places), first)])


def _scattered(new: Numbers) -> Iterator[Sample]:
    for rows, index, places, first in _kept(new):
        layer = new(3, 2, 4)
        arguments = {
            "all_activations": _turned(rows, first), "layer_activations": _turned(layer, first),
            "sorted_indices": index, "batch_first": first,
        }  # fmt: skip
        yield Sample(arguments, [_turned(rows.scatter(1, places, layer), first)])


def _scattered_into_one(new: Numbers) -> Iterator[Sample]:
    """The gradient of a sum has one element in memory."""
    for sample in _scattered(new):
        shape = sample.arguments["all_activations"].shape

        def one(device: torch.device, dtype: torch.dtype, shape: torch.Size = shape) -> Tensor:
            return torch.ones(1, dtype=dtype, device=device).expand(shape)

        first, layer = sample.arguments["batch_first"], sample.arguments["layer_activations"]
        places = _TOKENS.unsqueeze(-1).expand(-1, -1, 4)
        wanted = torch.ones(3, 7, 4, dtype=torch.float64).scatter_(1, places, _turned(layer, first))
        yield Sample({**sample.arguments, "all_activations": one}, [_turned(wanted, first)])


def _masks(new: Numbers) -> Iterator[Sample]:
    for kind in _INDICES:
        mask, layers = new(3, 1, 7, 7, times=8), torch.stack([_TOKENS, _TOKENS.flip(0)])
        kept = [[mask[row][:, each][:, :, each] for row, each in enumerate(layer)] for layer in layers]
        arguments = {"dense_mask": mask, "sorted_indices": layers.to(kind)}
        yield Sample(arguments, [torch.stack([torch.stack(layer) for layer in kept])])


def _first_masks(new: Numbers) -> Iterator[Sample]:
    mask = new(3, 2, 7, 7, times=8)
    for length in (4, 0, 1, 7):
        arguments = {"dense_mask": mask, "truncated_seq_len": length}
        yield Sample(arguments, [mask[:, :1, :length, :length]])


# ----------------------------------------------------------------------------- biases and signs


def _biased(names: tuple[str, ...], new: Numbers) -> Iterator[Sample]:
    """Images of both layouts, and tokens, also as many as channels: the last dimension is the channels'."""
    last, images = new(2, 8, 3, 5).contiguous(memory_format=torch.channels_last), new(2, 8, 3, 5)
    for x in (last, images, *((new(2, 5, 8), new(2, 8, 8)) if len(names) == 2 else ())):
        like = {
            name: x if name == "activation" else torch.empty_like(x).copy_(new(*x.shape)) for name in names
        }
        arguments = {name: new(8) if "bias" in name else each for name, each in like.items()}
        total = sum(
            each.view(-1, 1, 1) if each.dim() == 1 and x.dim() == 4 else each for each in arguments.values()
        )
        yield Sample(arguments, [torch.as_tensor(total)], once)


def _packed(new: Numbers) -> Iterator[Sample]:
    signs = new(3, 11)
    signs[0, :3] = torch.tensor([0.0, -0.0, torch.inf])
    bits = (~signs.flatten().signbit()).tolist()
    # DeepSpeed passes the rank in the whole job, which is not the index of a device.
    for count, rank in itertools.product((33, 0, 1, 7, 8, 9, 16), (0, 1001)):
        filled = [*bits[:count], *[False] * (-count % 8)]
        wanted = [
            sum(bit << 7 - at for at, bit in enumerate(filled[start : start + 8]))
            for start in range(0, len(filled), 8)
        ]
        arguments = {"tensor": signs, "input_size": count, "rank": rank}
        yield Sample(arguments, [torch.tensor(wanted, dtype=torch.uint8)], what=f"{count} signs, rank {rank}")


def _unpacked(new: Numbers) -> Iterator[Sample]:
    data = torch.arange(256, dtype=torch.uint8)
    for count, rank in itertools.product((256, 0, 1, 255), (0, 1001)):
        signs = [1.0 if byte >> 7 - at & 1 else -1.0 for byte in range(count) for at in range(8)]
        given = data if count == 256 and not rank else data.view(16, 16)
        arguments = {"tensor": given, "input_size": count, "rank": rank}
        yield Sample(arguments, [torch.tensor(signs, dtype=torch.float32)])


# --------------------------------------------------------------------------------------- evoformer

#: Shapes of queries, which biases there are, and places for figures behind the last query.
_FORMS: tuple[tuple[tuple[int, ...], str, int], ...] = (
    ((2, 3, 8, 2, 4), "keys and pairs", 0),
    ((5, 2, 4), "", 0),
    ((3, 5, 2, 4), "", 3),
    ((2, 3, 5, 2, 4), "", 0),
    ((2, 1, 2, 1, 2, 3, 2, 4), "", 1),
    ((2, 3, 6, 2, 4), "keys", 2),
    ((3, 2, 5, 3, 4), "pairs", 0),
    ((2, 3, 7, 2, 5), "keys and pairs", 4),
    ((2, 3, 32, 2, 8), "keys and pairs", 0),
    ((2, 3, 4, 2, 1), "", 0),
    ((2, 0, 5, 2, 4), "keys and pairs", 0),
)


def _problems(new: Numbers) -> Iterator[tuple[str, list[Tensor], int, bool]]:
    """Yield what it is, q, k, v and both biases, places for figures, and whether masks decide the result."""
    for shape, which, room in _FORMS:
        length, heads = shape[-3:-1]
        # Queries are large, so that the scores have something to lose in a half type.
        parts = [new.normal(*shape, times=12), new.normal(*shape), new.normal(*shape)]
        parts.append(new.normal(*shape[:2], 1, 1, length) if "keys" in which else new(0))
        parts.append(new.normal(shape[0], 1, heads, length, length) if "pairs" in which else new(0))
        yield f"{shape}, biases of {which or 'nothing'}", parts, room, False
    hidden = slice(1), slice(1, None), slice(None)
    cases = itertools.product(("keys", "pairs", "keys and pairs"), (-1e9, -1e4, 3e4), hidden)
    for which, size, keys in cases if new.dtype != torch.float64 else ():
        q, k, v = (new.normal(1, 2, 5, 2, 4) for _ in range(3))
        q.zero_()  # float32 would lose scores that are added to such biases
        biases = torch.zeros(1, 2, 1, 1, 5).double(), torch.zeros(1, 1, 2, 5, 5).double()
        for bias, name in zip(biases, ("keys", "pairs"), strict=True):
            bias[..., keys] = max(size, torch.finfo(new.dtype).min) if name in which else 0.0
        yield f"{size:g} for {which} {keys}", [q, k, v, *(new.rounded(bias) for bias in biases)], 0, True


def _with_room(figures: Tensor, room: int, filler: float) -> Tensor:
    return torch.cat([figures.float(), torch.full((*figures.shape[:2], room), filler)], 2)


def _attended(parts: list[Tensor]) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return leaves, scores and the output of attention."""
    leaves = [tensor.clone().requires_grad_() for tensor in parts]
    q, k, v, *biases = leaves
    scores = torch.einsum("...qhd,...khd->...hqk", q, k) / math.sqrt(q.shape[-1])
    for bias in biases:
        scores = scores + bias if bias.numel() else scores
    return leaves, scores, torch.einsum("...hqk,...khd->...qhd", scores.softmax(-1), v)


def _off(masks: bool, rounding: float, kind: torch.dtype) -> Allowed:
    """Return the error of an output or a gradient in a type; of masks, results are means."""

    def allowed(wanted: Tensor, dtype: torch.dtype) -> Tensor | float:
        if masks:
            return 64 * torch.finfo(kind).eps
        size = wanted.abs().nan_to_num(posinf=0.0)
        most = float(size.max()) if size.numel() else 0.0
        return 0.51 * size * torch.finfo(dtype).eps * 1.02 + 2e-5 * (1 + most) + rounding * max(1.0, most)

    return allowed


def _attention(new: Numbers) -> Iterator[Sample]:
    for what, parts, room, masks in _problems(new):
        _, scores, out = _attended(parts)
        shape = (math.prod(parts[0].shape[:-3]), *scores.shape[-3:-1])
        arguments = dict(zip(("q", "k", "v", "bias1", "bias2"), parts, strict=True))
        arguments |= {"o": nothing_yet(*parts[0].shape), "lse": torch.zeros(*shape[:2], shape[2] + room)}
        figures = scores.detach().logsumexp(-1).view(shape)
        results = [out.detach(), _with_room(figures, room, math.inf)]
        # A mean of all hidden keys has the mask's size in its figure.
        off = _off(masks, 0.0, new.dtype)
        yield Sample(arguments, results, _figures(off) if masks else off, what)
    if new.dtype == torch.float32:
        yield _in_parts(new)


def _in_parts(new: Numbers) -> Sample:
    """Return more scores than an op in plain torch keeps at a time, in each of two batches."""
    rows, (length, heads) = (2, 5), (1024, 4)
    q, k, v = (new.normal(*rows, length, heads, 1) for _ in range(3))
    keys, pairs = (
        new.normal(*rows, 1, 1, length),
        new.normal(2, 1, heads, 1, length).expand(-1, -1, -1, length, -1),
    )
    arguments = {"q": q, "k": k, "v": v, "bias1": keys, "bias2": pairs, "o": nothing_yet(*q.shape)}

    def errors(found: list[Tensor]) -> dict[str, float]:
        apart = {}
        for first, second in ((0, 0), (0, 4), (1, 0), (1, 4)):
            part = slice(first, first + 1), slice(second, second + 1)
            _, scores, out = _attended([*(each[part] for each in (q, k, v, keys)), pairs[part[0]]])
            apart[f"output of row {second} of {first}"] = error(found[0][part], out.detach(), 1e-5)
            figures = scores.detach().logsumexp(-1)[0, 0]
            apart[f"figures of row {second} of {first}"] = error(found[1][5 * first + second], figures, 1e-5)
        return apart

    return Sample({**arguments, "lse": torch.zeros(10, heads, length)}, errors, what="computed in parts")


def _figures(outputs: Allowed) -> Allowed:
    return lambda wanted, dtype: (
        outputs(wanted, dtype) if wanted.dim() > 3 else 1e-6 * (1 + wanted.abs().nan_to_num())
    )


#: Of gradients, next to which the rounding of the output counts, as the op reads it.
_ROUNDED = {torch.float64: 1e-5, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def _gradients(new: Numbers) -> Iterator[Sample]:
    for what, parts, room, masks in _problems(new):
        leaves, scores, out = _attended(parts)
        grad = new.normal(*parts[0].shape)
        out.backward(grad)
        out = out.detach()
        shape = (math.prod(parts[0].shape[:-3]), *scores.shape[-3:-1])
        delta = (grad * new.rounded(out)).sum(-1).transpose(-1, -2).reshape(shape)
        names = ("q", "k", "v", "bias1", "bias2")
        found = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
        before = [(new.normal(*bias.shape) * (not masks)).float() for bias in parts[3:]]
        arguments: dict[str, Any] = {
            "go": grad, **dict(zip(names[:3], parts, strict=False)), "o": new.rounded(out),
            "lse": _with_room(scores.detach().logsumexp(-1).view(shape), room, math.inf),
            "delta": torch.zeros(*shape[:2], shape[2] + room), "bias1": parts[3], "bias2": parts[4],
            **{f"g{name}": nothing_yet(*leaf.shape) for name, leaf in zip("qkv", leaves, strict=False)},
            "gb1": before[0], "gb2": before[1],
        }  # fmt: skip
        sums_of_biases = [one.float() + two.float() for one, two in zip(before, found[3:], strict=True)]
        results = [_with_room(delta, room, 0.0), *found[:3], *sums_of_biases]
        yield Sample(arguments, results, _off(masks, _ROUNDED[new.dtype], new.dtype), what)


_IMAGES = {
    "nhwc_bias_add": ("activation", "bias"),
    "nhwc_bias_add_add": ("activation", "bias", "other"),
    "nhwc_bias_add_bias_add": ("activation", "bias", "other", "other_bias"),
}
_ANY = (*FLOATS, torch.int64)
SPECS = (
    OpSpec(
        _LTD, "token_sort_", _sorted, ("unsorted_token_ids",), in_place=True, types=FLOATS[:1],
        taken=takes(unsorted_token_ids=(SHORTER, FEWER)),
    ),
    OpSpec(
        _LTD, "token_gather", _gathered, types=_ANY,
        taken=takes(activations=(TYPE, SHORTER), sorted_indices=(SHORTER,)),
    ),
    OpSpec(_LTD, "token_scatter_", _scattered, ("all_activations",), in_place=True),
    OpSpec(_LTD, "token_scatter_", _scattered_into_one, rejects=False, what="token_scatter_ into one element"),
    OpSpec(
        _LTD, "mask_gather_bert", _masks, types=_ANY,
        taken=takes(dense_mask=(TYPE,), sorted_indices=(SHORTER, FEWER)),
    ),
    OpSpec(
        _LTD, "mask_gather_gpt", _first_masks, types=_ANY,
        numbers={"truncated_seq_len": {"negative": -1, "10 of 7": 10}},
        taken=takes(dense_mask=(TYPE, SHORTER, FEWER)),
    ),
    *(
        OpSpec(
            _SPATIAL, function, partial(_biased, names), strides="activation",
            taken=takes(activation=(SHORTER, FEWER) if len(names) == 2 else ()),
        )
        for function, names in _IMAGES.items()
    ),
    OpSpec(
        _PACKBITS, "packbits", _packed, numbers={"input_size": {"negative": -1, "34 of 33": 34}},
        taken=takes(tensor=(FLOAT, MORE)), sizes=True,
    ),
    OpSpec(
        _PACKBITS, "unpackbits", _unpacked, types=FLOATS[:1],
        numbers={"input_size": {"negative": -1, "257 of 256": 257}}, taken=takes(tensor=(MORE,)), sizes=True,
    ),
    # The type of a bias is that of its scores, or what torch adds to them.
    OpSpec(
        _EVOFORMER, "attention", _attention, ("o", "lse"), types=(*FLOATS, torch.float64),
        taken=takes(bias1=(TYPE,), bias2=(TYPE,), lse=(TYPE,)),
    ),
    OpSpec(
        _EVOFORMER, "attention_bwd", _gradients, ("delta", "gq", "gk", "gv", "gb1", "gb2"),
        types=(*FLOATS, torch.float64),
        taken=takes(**dict.fromkeys(("bias1", "bias2", "lse", "delta"), (TYPE,))),
    ),
)  # fmt: skip
