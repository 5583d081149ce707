# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op attention: prompts, tokens after them, layers, masks, and the cache of `transformer_inference`, beside float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_ops.reference import Attention, Sequences
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds, expect, largest
from accel_testkit.suite.ops.spec import FLOATS, error, typed

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("InferenceBuilder")]

_TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 8e-2}
_BATCH = 2
_PLAIN = Attention()
_MODELS = {
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


class CachedAttention:
    """Calls `softmax_context` as DeepSpeed does, and computes the same beside it."""

    def __init__(
        self, accelerator: DeepSpeedAccelerator, model: Attention, dtype: torch.dtype = torch.float32
    ) -> None:
        self.op = accelerator.create_op_builder("InferenceBuilder").load()
        self.device, self.model, self.dtype = torch.device(accelerator.device()), model, dtype
        self.generator = torch.Generator().manual_seed(23)
        self.layers: dict[int, Sequences] = {}
        self.allocate()

    def allocate(self) -> None:
        """Begin as DeepSpeed does before the first prompt."""
        allocate = typed(self.op, "allocate_workspace", self.dtype)
        allocate(32, self.model.heads, 8, _BATCH, 2, 1, False, 0, 1024, 1)

    def random(self, *shape: int) -> torch.Tensor:
        """Numbers in [-1, 1) on the host, in float64, that the type holds."""
        numbers = torch.rand(shape, generator=self.generator, dtype=torch.float64) * 2 - 1
        return numbers.to(self.dtype).double()

    def error(self, layer: int, tokens: int, batch: int = _BATCH, *, prompt: bool) -> float:
        """Send new tokens through a layer; return the largest error of attention, keys and values."""
        model = self.model
        if prompt:
            self.layers[layer] = Sequences()
        past = self.layers.setdefault(layer, Sequences())
        total = sum(part.shape[2] for part in past.keys) + tokens
        rows = self.random(batch, tokens, (model.heads + 2 * model.groups) * model.width)
        bias = self.random(batch * model.heads, 1, total) if model.alibi else None
        mask = torch.zeros(batch, 1, 1, total)
        mask[0, ..., : model.padding] = torch.finfo(self.dtype).min
        found = self._call(rows, mask, bias, layer, prompt)
        shaped = None if bias is None else bias.view(batch, model.heads, 1, total)
        wanted = past.attend(rows, model, shaped)
        first = model.padding if total == tokens else 0  # a query with every key hidden has no meaning
        pairs = zip((found[0][:, first:], *found[1:]), (wanted[0][:, first:], *wanted[1:]), strict=True)
        return largest(_difference(a, b) for a, b in pairs)

    def check(self, layer: int, tokens: int, what: str, batch: int = _BATCH, *, prompt: bool) -> None:
        """Send new tokens through a layer; fail the check if attention, keys or values are wrong."""
        error = self.error(layer, tokens, batch, prompt=prompt)
        expect(
            error <= _TOLERANCE[self.dtype],
            f"softmax_context is wrong: {what}",
            found=f"an error of {error:g}",
            expected=f"at most {_TOLERANCE[self.dtype]:g} beside float64, in attention, keys and values",
            do="compare the op that InferenceBuilder loads with DeepSpeed's attention",
        )

    def _call(self, rows: Any, mask: Any, bias: Any, layer: int, prompt: bool) -> Any:
        model = self.model
        none = torch.empty(1, device=self.device)
        place = {"device": self.device, "dtype": self.dtype}
        rotation = model.rotary, bool(model.rotary) and not model.interleaved, model.interleaved
        return typed(self.op, "softmax_context", self.dtype)(
            rows.to(**place), mask.to(**place) if model.padding else none, *rotation, model.heads, model.groups,
            model.factor, model.causal, bool(model.window), model.window, not model.padding, layer, 2,
            none if bias is None else bias.to(**place), model.theta, prompt,
        )  # fmt: skip


def _difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    if found.shape != wanted.shape:
        return float("inf")
    return float((found.detach().cpu().double() - wanted).abs().max())


@pytest.mark.parametrize("dtype", _TOLERANCE, ids=["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("model", _MODELS)
def test_attention_is_right(accelerator: DeepSpeedAccelerator, model: str, dtype: torch.dtype) -> None:
    """A prompt, tokens after it, and another prompt, in two layers, give the attention that the definition gives."""
    needs.types(accelerator, dtype)
    engine = CachedAttention(accelerator, _MODELS[model], dtype)
    for tokens in (5, 1, 1, 1, 4, 1):
        for layer in (0, 1):
            engine.check(layer, tokens, f"{tokens} tokens in layer {layer}, {model}", prompt=tokens > 1)


def test_tokens_go_on_from_one_token(accelerator: DeepSpeedAccelerator) -> None:
    """A prompt of one token is a prompt, and the cache grows from it."""
    engine = CachedAttention(accelerator, _MODELS["rotated halves"])
    for prompt in (True, False, False, False, True, False):
        engine.check(0, 1, "one token, as a prompt or after one", prompt=prompt)


def test_positions_are_exact_in_long_prompts(accelerator: DeepSpeedAccelerator) -> None:
    """Rotation by positions beyond 2048, the last integers of float16, is that of float32 at least."""
    engine = CachedAttention(accelerator, replace(_PLAIN, heads=1, groups=1, rotary=4))
    for tokens in (2051, 1):
        engine.check(0, tokens, f"{tokens} tokens at the end of a long prompt", 1, prompt=tokens > 1)


def test_cache_can_be_reset(accelerator: DeepSpeedAccelerator) -> None:
    """After `reset_cache()`, and after the workspace was released or allocated again, sequences restart."""
    engine, holds = CachedAttention(accelerator, _MODELS["rotated halves"]), Holds()
    for name in ("reset_cache", "release_workspace", "reset_cache", "allocate_workspace"):
        for layer in (0, 1):
            engine.check(layer, 5, f"a prompt before {name}()", prompt=True)
        if name == "allocate_workspace":
            engine.allocate()
        else:
            holds[f"{name}() is not False"] = getattr(engine.op, name)() is not False
        if name == "release_workspace":
            # DeepSpeed's hybrid engine ends with it.
            holds["retake_workspace() is not False"] = engine.op.retake_workspace() is not False
            continue
        engine.layers.clear()
        for layer in (1, 0):
            engine.check(layer, 1, f"a token after {name}()", prompt=False)
    holds.expect("what a function of the workspace returns", "return True: False means that it did nothing")


def test_every_layer_has_a_cache(accelerator: DeepSpeedAccelerator) -> None:
    """Layers far apart, of a model with hundreds of them, keep their own sequences."""
    engine = CachedAttention(accelerator, _MODELS["causal"])
    layers = (0, 32, 64, 128, 255)
    for tokens in (5, 1):
        for layer in layers:
            what = f"{tokens} tokens in layer {layer}, of layers {layers}"
            engine.check(layer, tokens, what, prompt=tokens > 1)


@pytest.mark.needs("reserved_memory")
def test_released_workspace_is_free(accelerator: DeepSpeedAccelerator) -> None:
    """After `release_workspace()` the keys and values of a prompt take no memory: the hybrid engine then trains."""
    if accelerator.is_synchronized_device():
        pytest.skip("the figures are the host's, which keeps what was freed")
    model = replace(_PLAIN, heads=32, groups=32, width=128)
    engine = CachedAttention(accelerator, model)
    engine.error(0, 5, prompt=True)
    engine.op.release_workspace()
    engine.layers.clear()
    before = accelerator.memory_allocated()
    engine.op.retake_workspace()
    rows = torch.zeros(_BATCH, 640, 3 * model.heads * model.width)  # 40 MiB of keys and values
    engine._call(rows, None, None, 0, True)
    held = accelerator.memory_allocated() - before
    engine.op.release_workspace()
    left = accelerator.memory_allocated() - before
    holds = Holds({f"next to nothing of {held:,} bytes is left, found {left:,}": left <= held // 4})
    do = "free the keys and values, or give them back to the caching allocator"
    holds.expect("the memory of the cache after release_workspace()", do)


def test_cache_can_be_repeated(accelerator: DeepSpeedAccelerator) -> None:
    """`repeat_kv_cache(batch, n)` repeats each sequence n times in every layer, and tokens go on from there."""
    engine = CachedAttention(accelerator, _MODELS["grouped heads"])
    for layer in (0, 1):
        engine.error(layer, 5, prompt=True)
    found = typed(engine.op, "repeat_kv_cache", torch.float32)(_BATCH, 3)
    wanted = [rows for layer in (0, 1) for rows in engine.layers[layer].repeat(3)]
    holds = Holds()
    holds.equal("how many tensors it gives", len(found), len(wanted))
    for number, (mine, rows) in enumerate(zip(found, wanted, strict=False)):
        holds.near(f"{('keys', 'values')[number % 2]} of layer {number // 2}", mine, rows, 1e-6)
    do = "repeat each sequence, not the batch; give each layer's keys, then values"
    holds.expect("repeat_kv_cache()", do)
    for layer in (0, 1):
        engine.check(layer, 1, "a token after repeat_kv_cache()", 3 * _BATCH, prompt=False)


def test_two_ops_share_no_cache(accelerator: DeepSpeedAccelerator) -> None:
    """Two loaded ops keep the sequences of two models."""
    engines = [CachedAttention(accelerator, _MODELS["causal"]) for _ in range(2)]
    engines[1].generator.manual_seed(29)
    for tokens in (4, 1, 1):
        for engine in engines:
            engine.check(0, tokens, "two ops in turn", prompt=tokens > 1)


_TOKENS, _HEADS, _WIDTH = 4, 2, 4  # of what `_attention` calls
_NEAR = 1e-5
_DO = "compare the op that InferenceBuilder loads with DeepSpeed's functions"


def _rows(batch: int, tokens: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(97)
    return torch.rand(batch, tokens, 3 * _HEADS * _WIDTH, generator=generator) * 2 - 1


def _attention(
    op: Any,
    rows: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    groups: int = _HEADS,
    causal: bool = True,
    prompt: bool = True,
    positions: torch.Tensor | None = None,
) -> Any:
    none = rows.new_empty(1)
    given = none if mask is None else mask.to(rows.device)
    more = () if positions is None else (None, positions.to(rows.device))
    return typed(op, "softmax_context", rows.dtype)(
        rows, given, _WIDTH, True, False, _HEADS, groups, 0.7, causal, False, 0, mask is None, 0, 1, none,
        10000.0, prompt, *more,
    )  # fmt: skip


def test_given_positions_rotate(op: Any, device: torch.device) -> None:
    """`position_ids` of each sequence take the place of counted ones: the keys are those of tokens at these places."""
    rows, holds = _rows(2, 5).to(device), Holds()
    counted = _attention(op, rows)
    for shape in ((1, 5), (2, 5)):
        found = _attention(op, rows, positions=torch.arange(5).expand(shape))
        for mine, theirs in zip(found, counted, strict=True):
            holds.near(f"positions {shape} that are counted", mine, theirs, _NEAR)
    starts = torch.tensor([[0], [3]])
    moved = _attention(op, rows, positions=starts + torch.arange(5))
    late = _attention(op, torch.cat([rows[:, :3], rows], 1))
    holds.near("attention depends on differences of positions", moved[0], counted[0], 1e-4)
    holds.near("the first sequence's keys", moved[1][0], counted[1][0], _NEAR)
    holds.near("keys of the second, which begins at 3", moved[1][1], late[1][1, :, 3:], 1e-4)
    holds.near("values are not rotated", moved[2], counted[2], _NEAR)
    holds.expect("softmax_context() with position_ids", _DO)


def test_cache_takes_other_batches(accelerator: DeepSpeedAccelerator, op: Any, device: torch.device) -> None:
    """A prompt of another batch, type or length restarts the sequence of a used layer; tokens then go on from it."""
    model = replace(_PLAIN, heads=_HEADS, groups=_HEADS, width=_WIDTH, rotary=_WIDTH)
    engine, holds = CachedAttention(accelerator, model), Holds()
    for batch, tokens in ((2, 4), (3, 2), (1, 9), (2, 3)):
        for later in range(3):
            what = f"{batch} sequences of {tokens}, {later} tokens later"
            engine.check(0, 1 if later else tokens, what, batch, prompt=not later)
    rows = _rows(2, 3).to(device)
    heads = _attention(op, rows)[0].clone()
    holds.near("0 groups are as many as heads", _attention(op, rows, groups=0)[0], heads, _NEAR)
    holds.near("many tokens are a prompt", _attention(op, rows, prompt=False)[0], heads, _NEAR)
    two = _attention(op, rows[:, :2])[0].clone()
    holds.near("two tokens are a prompt", _attention(op, rows[:, :2], prompt=False)[0], two, _NEAR)
    holds.expect("the cache of softmax_context()", _DO)


def test_what_there_is_not_is_refused(op: Any, device: torch.device) -> None:
    """Weights of int8, and repeating a cache before a prompt, are errors; so is another activation of the MLP."""
    x, w, g = (torch.ones(shape, device=device) for shape in ((1, 2, 8), (8, 8), (8,)))
    none, gemm = x.new_empty(1), typed(op, "mlp_gemm", torch.float32)

    def mlp(int8: bool, kind: int) -> Any:
        return gemm(x, x, None, w, w, g, g, g, 1e-5, True, False, none, none, int8, kind, False)

    holds, product = Holds(), typed(op, "rms_qkv_gemm", torch.float32)
    holds.raises(Exception, "rms_qkv_gemm() of int8", lambda: product(x, w, none, g, 1e-5, True, False))
    holds.raises(Exception, "mlp_gemm() of int8", lambda: mlp(True, 1))
    holds.raises(Exception, "mlp_gemm() with an unknown activation", lambda: mlp(False, 17))
    mlp(False, 1)
    op.reset_cache()
    repeat = typed(op, "repeat_kv_cache", torch.float32)
    holds["no layer has been used: nothing is repeated"] = repeat(1, 2) == []
    _attention(op, _rows(1, 2).to(device))
    op.reset_cache()
    holds.raises(Exception, "repeat_kv_cache() of an empty layer", lambda: repeat(1, 2))
    holds.expect("what transformer_inference refuses", _DO)


#: Shapes of masks for as many keys.
_SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "a sequence": lambda keys: (_BATCH, keys),
    "a sequence of four dimensions": lambda keys: (_BATCH, 1, 1, keys),
    "queries": lambda keys: (_BATCH, _TOKENS, keys),
    "queries of four dimensions": lambda keys: (_BATCH, 1, _TOKENS, keys),
    "heads": lambda keys: (_BATCH, _HEADS, _TOKENS, keys),
    "one for all": lambda keys: (1, 1, 1, keys),
    "one more key": lambda keys: (_BATCH, 1, 1, keys + 1),
    "one key less": lambda keys: (_BATCH, 1, 1, keys - 1),
}


def _hidden(shape: tuple[int, ...]) -> Iterator[tuple[str, torch.Tensor]]:
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


def _masks(shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield masks of each kind."""
    for name, hidden in _hidden(shape):
        for value in (-torch.inf, torch.finfo(dtype).min, -1e4):
            yield f"{value:g} for {name}", torch.zeros(shape).masked_fill(hidden, value).to(dtype)
        yield f"bool for {name}", ~hidden
        yield f"integers for {name}", (~hidden).int()
    soft = torch.randn(shape, generator=torch.Generator().manual_seed(7)).mul_(3).to(dtype)
    yield "biases", soft
    yield "biases beside hidden keys", soft.masked_fill(soft < -2, -1e4)


def _attended(rows: torch.Tensor, mask: torch.Tensor, causal: bool) -> torch.Tensor:
    """Return attention in float64. A mask is ignored for a query to which it leaves no key."""
    query, keys, values = (
        part.transpose(1, 2) for part in rows.double().unflatten(2, (3, _HEADS, _WIDTH)).unbind(2)
    )
    scores = query @ keys.mT * 0.7**2
    mask = mask[:, None, None] if mask.dim() == 2 else mask[:, None] if mask.dim() == 3 else mask
    adds = mask.double() if mask.is_floating_point() else torch.zeros(mask.shape).double()
    adds = adds.masked_fill(adds < -9000 if mask.is_floating_point() else mask == 0, -torch.inf)
    missing = max(0, scores.shape[-1] - adds.shape[-1])
    adds = torch.nn.functional.pad(adds, (0, missing), value=-torch.inf)[..., : scores.shape[-1]]
    later = torch.full(scores.shape[-2:], -torch.inf).double().triu(1) if causal else torch.zeros(()).double()
    total = (scores + adds + later).where((adds + later > -torch.inf).any(-1, keepdim=True), scores + later)
    found: torch.Tensor = total.softmax(-1) @ values
    return found.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])
@pytest.mark.parametrize("shape", _SHAPES)
def test_masks_of_every_kind_are_applied(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, shape: str, causal: bool
) -> None:
    """A mask adds to the scores, and hides where it is -9000 or less, False or 0; no result is NaN."""
    holds = Holds()
    generator = torch.Generator().manual_seed(11)
    for dtype in [kind for kind in FLOATS if kind in accelerator.supported_dtypes()][
        : None if shape == "heads" else 1
    ]:
        none = torch.empty(1, dtype=dtype, device=device)
        rows = torch.randn(_BATCH, _TOKENS, 3 * _HEADS * _WIDTH, generator=generator)
        rows[:, 1, : 2 * _HEADS * _WIDTH] *= (
            100.0  # a query and a key whose scores are beyond masks of -10000
        )
        rows = rows.to(dtype)
        for name, mask in _masks(_SHAPES[shape](_TOKENS), dtype):
            wanted = _attended(rows, mask, causal)
            found = typed(op, "softmax_context", dtype)(
                rows.to(device), mask.to(device), 0, False, False, _HEADS, _HEADS, 0.7, causal, False, 0, False,
                0, 1, none, 10000.0, True,
            )[0]  # fmt: skip
            # Scores and their sum with a bias may be rounded to the type.
            times = error(found, wanted, 40 * torch.finfo(dtype).eps)
            holds[f"{dtype}, {name}: {times:.3g} times as far off as allowed"] = times <= 1
    holds.expect(f"softmax_context with masks of {shape}", "add the mask, and hide keys exactly")
