# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The model: its shapes, that no position sees a later byte, and what it says before and after training."""

from __future__ import annotations

import pytest
import torch
from byte_lm.model import ByteGPT, ModelShape, generate, printable

SHAPE = ModelShape(context=24, layers=2, heads=2, width=16)


@pytest.fixture
def model() -> ByteGPT:
    """A model whose blocks do something: at the start their outputs are zero."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ByteGPT(SHAPE)
        for block in model.blocks:
            torch.nn.init.normal_(block.attention.out.weight)
            torch.nn.init.normal_(block.down.weight)
    return model.eval()


def random_tokens(batch: int, time: int) -> torch.Tensor:
    return torch.randint(256, (batch, time), generator=torch.Generator().manual_seed(0))


def test_a_later_byte_changes_no_earlier_logits(model: ByteGPT) -> None:
    tokens = random_tokens(2, 24)
    changed = tokens.clone()
    changed[:, 15] = (changed[:, 15] + 1) % 256
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :15], after[:, :15])
    assert not torch.isclose(before[:, 15:], after[:, 15:]).all(dim=-1).any()


def test_the_loss_is_the_mean_cross_entropy_in_nats(model: ByteGPT) -> None:
    tokens, targets = random_tokens(2, 8), random_tokens(2, 8).flip(0)
    probabilities = model(tokens).double().softmax(-1)
    expected = -probabilities.gather(-1, targets[..., None]).log().mean()
    assert model(tokens, targets).item() == pytest.approx(expected.item(), rel=1e-5)


def test_generation_keeps_the_prompt_and_repeats_itself_for_a_seed(model: ByteGPT) -> None:
    text = generate(model, b"def ", 40, context=24, device="cpu", seed=3)
    assert text.startswith(b"def ")
    assert len(text) == 44
    assert text == generate(model, b"def ", 40, context=24, device="cpu", seed=3)
    assert text != generate(model, b"def ", 40, context=24, device="cpu", seed=4)


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert printable(b"a\n\tb\x1b[2J\xff") == "a\n\tb\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}"
