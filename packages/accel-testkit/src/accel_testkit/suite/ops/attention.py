# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Specs of `softmax_context`: prompts and tokens after them, through the key-value caches of layers; masks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from accel_ops.reference import Attention, Sequences, rotated
from accel_testkit.suite.ops.spec import Numbers, OpSpec, Sample, Tensor, Values, error, typed

_BUILDER = "InferenceBuilder"
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 8e-2}
_BATCH = 2
_PLAIN = Attention()
MODELS = {
    "causal": _PLAIN,
    "not causal": replace(_PLAIN, causal=False),
    "rotated halves": replace(_PLAIN, rotary=8),
    "rotated neighbours, part of the channels": replace(_PLAIN, rotary=4, interleaved=True, theta=300.0),
    "grouped heads": replace(_PLAIN, groups=2, rotary=8, theta=1000.0),
    # Counts of heads, groups and channels that could be taken for each other.
    "as many channels as heads": replace(_PLAIN, groups=2, width=4, rotary=4),
    "as many channels as groups": replace(_PLAIN, groups=2, width=2, rotary=2),
    "one group": replace(_PLAIN, groups=1, width=16, factor=0.5),
    "window": replace(_PLAIN, window=3),
    "padding": replace(_PLAIN, padding=2, rotary=8),
    "alibi": replace(_PLAIN, alibi=True),
    # Together, as some models have them.
    "alibi, as many channels as groups": replace(_PLAIN, alibi=True, groups=2, width=2),
    "alibi, grouped heads, window": replace(_PLAIN, alibi=True, groups=2, window=3),
    "padding, one group, part of the channels": replace(_PLAIN, padding=2, groups=1, width=16, rotary=12),
}


@dataclass(frozen=True)
class _Send:
    """New tokens for a layer. first: functions of the op that are called before; changed: other arguments."""

    layer: int
    tokens: int
    prompt: bool
    batch: int = _BATCH
    first: tuple[str, ...] = ()
    changed: tuple[tuple[str, Any], ...] = ()


def arguments(
    model: Attention, rows: Tensor, mask: Tensor | None, bias: Tensor | None, layer: int, prompt: bool
) -> Values:
    """Return the arguments of `softmax_context`, in upstream's order."""
    none = rows.new_zeros(1)
    return {
        "rows": rows, "mask": none if mask is None else mask, "rotary": model.rotary,
        "halves": bool(model.rotary) and not model.interleaved, "interleaved": model.interleaved,
        "heads": model.heads, "groups": model.groups, "factor": model.factor, "causal": model.causal,
        "local": bool(model.window), "window": model.window, "no_mask": mask is None, "layer": layer, "layers": 2,
        "alibi": none if bias is None else bias, "theta": model.theta, "prompt": prompt,
    }  # fmt: skip


def call(op: Any, given: Values) -> Any:
    """Call other functions of the op first, then `softmax_context`, as DeepSpeed does."""
    given = dict(given)
    dtype = given["rows"].dtype
    for name in given.pop("first", ()):
        settings = (32, given["heads"], 8, _BATCH, 2, 1, False, 0, 1024, 1)
        found = typed(op, name, dtype)(*settings) if name == "allocate_workspace" else getattr(op, name)()
        if found is False:
            raise AssertionError(f"{name}() returns False, which means that it did nothing")
    return typed(op, "softmax_context", dtype)(*given.values())


def _sent(
    model: Attention, sends: Sequence[_Send], new: Numbers, past: dict[int, Sequences], what: str
) -> Sample:
    """Return the call for the first of some sends; the others follow."""
    send, *others = sends
    if send.prompt:
        past[send.layer] = Sequences()
    if {"reset_cache", "release_workspace", "allocate_workspace"} & {*send.first}:
        past = {send.layer: Sequences()}
    layer = past.setdefault(send.layer, Sequences())
    total = sum(part.shape[2] for part in layer.keys) + send.tokens
    rows = new(send.batch, send.tokens, (model.heads + 2 * model.groups) * model.width)
    bias = new(send.batch * model.heads, 1, total) if model.alibi else None
    mask = torch.zeros(send.batch, 1, 1, total, dtype=torch.float64)
    mask[0, ..., : model.padding] = torch.finfo(new.dtype).min
    wanted = layer.attend(rows, model, None if bias is None else bias.view(send.batch, model.heads, 1, total))
    hidden = model.padding if total == send.tokens else 0  # a query with every key hidden has no meaning

    def errors(found: list[Tensor]) -> dict[str, float]:
        pairs = zip((found[0][:, hidden:], *found[1:]), (wanted[0][:, hidden:], *wanted[1:]), strict=True)
        apart = (error(one, each, _TOLERANCE[new.dtype]) for one, each in pairs)
        return dict(zip(("attention", "keys", "values"), apart, strict=True))

    def then(found: list[Tensor]) -> Sample | None:
        return _sent(model, others, new, past, what) if others else None

    given = arguments(model, rows, mask if model.padding else None, bias, send.layer, send.prompt)
    given |= {"first": send.first, **dict(send.changed)}
    return Sample(given, errors, what=f"{what}, {send}", then=then)


def _in_layers(counts: Sequence[int], layers: Sequence[int] = (0,), **more: Any) -> list[_Send]:
    """Return as many tokens at a time for each of the layers; more than one are a prompt."""
    return [_Send(layer, count, count > 1, **more) for count in counts for layer in layers]


def _samples(new: Numbers) -> Iterator[Sample]:
    def sent(what: str, model: Attention, sends: Sequence[_Send]) -> Sample:
        first = replace(sends[0], first=("allocate_workspace", *sends[0].first))
        return _sent(model, [first, *sends[1:]], new, {}, what)

    for name, model in MODELS.items():
        yield sent(name, model, _in_layers((5, 1, 1, 1, 4, 1), (0, 1)))
    yield from _masked(new, "heads")
    if new.dtype != torch.float32:
        return
    rotary = MODELS["rotated halves"]
    one = [_Send(0, 1, prompt) for prompt in (True, False, False, False, True, False)]
    yield sent("a prompt of one token", rotary, one)
    # Beyond the last integers of float16.
    long = replace(_PLAIN, heads=1, groups=1, rotary=4)
    yield sent("positions in long prompts", long, _in_layers((2051, 1), batch=1))
    yield sent("layers far apart", MODELS["causal"], _in_layers((5, 1), (0, 32, 64, 128, 255)))
    ends = []
    for name in ("reset_cache", "reset_cache", "allocate_workspace"):
        ends += [*_in_layers((5,), (0, 1)), _Send(1, 1, False, first=(name,)), _Send(0, 1, False)]
    # DeepSpeed's hybrid engine ends with the first, and begins with the second.
    again = ("release_workspace", "retake_workspace")
    ends[4:4] = [_Send(0, 5, True, first=again), _Send(0, 1, False)]
    yield sent("a workspace that is reset, released or allocated again", rotary, ends)
    others = []
    for batch, tokens in ((2, 4), (3, 2), (1, 9), (2, 3)):
        others += [_Send(0, tokens, True, batch), *[_Send(0, 1, False, batch)] * 2]
    # Several tokens are a prompt, whatever is said; and 0 groups are as many as heads.
    others += [replace(others[0], tokens=tokens, changed=(("prompt", False),)) for tokens in (3, 2)]
    yield sent("other batches", rotary, [*others, replace(others[0], changed=(("groups", 0),))])
    yield from _placed(new)
    for shape in _SHAPES:
        yield from _masked(new, shape) if shape != "heads" else ()


def _placed(new: Numbers) -> Iterator[Sample]:
    """Yield prompts with positions for each sequence, which take the place of counted ones."""
    model = MODELS["rotated halves"]
    rows = new(_BATCH, 5, 3 * model.heads * model.width)
    attention, keys, values = Sequences().attend(rows, model, None)
    for positions in (
        torch.arange(5).expand(1, 5),
        torch.arange(5).expand(2, 5),
        torch.tensor([[0], [3]]) + torch.arange(5),
    ):
        start = int(positions[-1, 0])
        raw = rows.view(_BATCH, 5, -1, model.width).transpose(1, 2)[:, model.heads : -model.groups]
        # Attention depends on differences of positions.
        wanted = [attention, torch.cat([keys[:1], rotated(raw[1:], start, model)]), values]
        given = arguments(model, rows, None, None, 0, True) | {"none": None, "positions": positions}
        yield Sample(given, wanted, lambda *_: 1e-4, what=f"positions {positions.tolist()}")


# ------------------------------------------------------------------------------- masks

_TOKENS = 4
_MASKED = Attention(heads=2, groups=2, width=4, factor=0.7)
#: Shapes of masks for as many keys.
_SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "a sequence": lambda keys: (_BATCH, keys),
    "a sequence of four dimensions": lambda keys: (_BATCH, 1, 1, keys),
    "queries": lambda keys: (_BATCH, _TOKENS, keys),
    "queries of four dimensions": lambda keys: (_BATCH, 1, _TOKENS, keys),
    "heads": lambda keys: (_BATCH, _MASKED.heads, _TOKENS, keys),
    "one for all": lambda keys: (1, 1, 1, keys),
    "one more key": lambda keys: (_BATCH, 1, 1, keys + 1),
    "one key less": lambda keys: (_BATCH, 1, 1, keys - 1),
}


def _hidden(shape: tuple[int, ...]) -> Iterator[tuple[str, Tensor]]:
    """Yield masks of bool, True where a key is hidden."""
    nothing = torch.zeros(shape, dtype=torch.bool)
    first, last, sequence = nothing.clone(), ~nothing, nothing.clone()
    first[..., 0], last[..., -1], sequence[0] = True, False, True
    yield from {
        "nothing": nothing,
        "one key": first,
        "all keys but one": last,
        "a sequence": sequence,
    }.items()
    yield "all keys", ~nothing
    yield "some", torch.rand(shape, generator=torch.Generator().manual_seed(5)) < 0.5


def _masks(shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yield masks of each kind."""
    for name, hidden in _hidden(shape):
        for value in (-torch.inf, torch.finfo(dtype).min, -1e4):
            yield f"{value:g} for {name}", torch.zeros(shape).masked_fill(hidden, value).to(dtype)
        yield f"bool for {name}", ~hidden
        yield f"integers for {name}", (~hidden).int()
    soft = torch.randn(shape, generator=torch.Generator().manual_seed(7)).mul_(3).to(dtype)
    yield "biases", soft
    yield "biases and hidden keys", soft.masked_fill(soft < -2, -1e4)


def _bias(mask: Tensor, causal: bool) -> Tensor:
    """Return what a mask adds to the scores: nothing for a query to which it leaves no key."""
    mask = mask[:, None, None] if mask.dim() == 2 else mask[:, None] if mask.dim() == 3 else mask
    adds = mask.double() if mask.is_floating_point() else torch.zeros(mask.shape).double()
    adds = adds.masked_fill(adds < -9000 if mask.is_floating_point() else mask == 0, -torch.inf)
    adds = torch.nn.functional.pad(adds, (0, 1), value=-torch.inf)[..., :_TOKENS]
    later = torch.full((_TOKENS, _TOKENS), -torch.inf).triu(1) if causal else torch.zeros(())
    return adds.where((adds + later > -torch.inf).any(-1, keepdim=True), 0.0)


def _masked(new: Numbers, shape: str) -> Iterator[Sample]:
    """Yield prompts with masks, which add to the scores, and hide where they are -9000 or less, False or 0."""
    rows = new.normal(_BATCH, _TOKENS, 3 * _MASKED.heads * _MASKED.width)
    # A query and a key whose scores are beyond masks of -10000.
    rows[:, 1, : 2 * _MASKED.heads * _MASKED.width] *= 100.0
    rows = new.rounded(rows)
    # Scores and their sum with a bias may be rounded to the type.
    allowed = 40 * torch.finfo(new.dtype).eps
    for (name, mask), causal in itertools.product(_masks(_SHAPES[shape](_TOKENS), new.dtype), (True, False)):
        model = replace(_MASKED, causal=causal)
        wanted = Sequences().attend(rows, model, _bias(mask, causal))[0]
        given = arguments(model, rows, mask, None, 0, True)
        results = partial(_first, wanted, allowed)
        yield Sample(given, results, what=f"a mask of {name}, for {shape}, causal {causal}")


def _first(wanted: Tensor, allowed: float, found: list[Tensor]) -> dict[str, float]:
    return {"attention": error(found[0], wanted, allowed)}


# ------------------------------------------------------------------------------- repeated caches


def _repeat(op: Any, given: Values) -> list[Tensor]:
    """Send prompts through two layers, repeat each sequence three times, and send a token through both."""
    op.reset_cache()
    model = MODELS["grouped heads"]
    for layer, rows in enumerate(given["prompts"]):
        call(op, arguments(model, rows, None, None, layer, True))
    repeated = [each.clone() for each in typed(op, "repeat_kv_cache", rows.dtype)(_BATCH, 3)]
    tokens = (
        call(op, arguments(model, rows, None, None, at, False)) for at, rows in enumerate(given["tokens"])
    )
    return [*repeated, *(each for found in tokens for each in found)]


def _repeats(new: Numbers) -> Iterator[Sample]:
    model, past = MODELS["grouped heads"], [Sequences(), Sequences()]
    width = (model.heads + 2 * model.groups) * model.width
    prompts, tokens = (
        [new(_BATCH, 5, width), new(_BATCH, 5, width)],
        [new(3 * _BATCH, 1, width) for _ in past],
    )
    for rows, layer in zip(prompts, past, strict=True):
        layer.attend(rows, model, None)
    wanted = [each for layer in past for each in layer.repeat(3)]
    for rows, layer in zip(tokens, past, strict=True):
        wanted += layer.attend(rows, model, None)
    yield Sample({"prompts": prompts, "tokens": tokens}, wanted, lambda wanted, dtype: _TOLERANCE[dtype])


_of_cache = partial(OpSpec, _BUILDER, typed=True, rejects=False, shares=True)
SPECS = (
    _of_cache("softmax_context", _samples, called=call),
    _of_cache("repeat_kv_cache", _repeats, called=_repeat),
)
