# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs of one process: Hugging Face models with random weights, torch.compile, mixed precision, safetensors."""

import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.programs import Programs

PROGRAMS = Programs()
STEPS = 3
VOCABULARY = 64


def _train(device: str, model: Any, batch: dict[str, torch.Tensor], steps: int = STEPS) -> list[float]:
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    there = {name: tensor.to(device) for name, tensor in batch.items()}
    losses = []
    for _ in range(steps):
        loss = model(**there).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.item()))
    return losses


def _tokens(length: int = 16) -> dict[str, torch.Tensor]:
    tokens = torch.randint(0, VOCABULARY, (2, length), generator=torch.Generator().manual_seed(1))
    return {"input_ids": tokens, "labels": tokens}


_SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


@PROGRAMS("Hugging Face GPT-2")
def gpt2(device: str) -> list[float]:
    """Train a GPT-2 with tied embeddings."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    quiet = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4, **quiet)
    return _train(device, GPT2LMHeadModel(config), _tokens())


@PROGRAMS("Hugging Face Llama")
def llama(device: str) -> list[float]:
    """Train a Llama with grouped queries, then let it write."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**_SIZES, intermediate_size=64, num_key_value_heads=2, max_position_embeddings=64)
    model = LlamaForCausalLM(config)
    losses = _train(device, model, _tokens())
    with torch.no_grad():
        written = model.generate(
            _tokens(4)["input_ids"].to(device), max_new_tokens=4, do_sample=False, pad_token_id=0
        )
    return [*losses, float(written.sum().item())]


@PROGRAMS("Hugging Face Mixtral")
def mixtral(device: str) -> list[float]:
    """Train a Mixtral: its router counts the tokens of each expert."""
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(0)
    config = MixtralConfig(
        **_SIZES, intermediate_size=64, num_key_value_heads=2, num_local_experts=4, max_position_embeddings=64
    )
    return _train(device, MixtralForCausalLM(config), _tokens())


@PROGRAMS("Hugging Face T5")
def t5(device: str) -> list[float]:
    """Train an encoder and decoder."""
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
        decoder_start_token_id=0,
    )  # fmt: skip
    return _train(device, T5ForConditionalGeneration(config), _tokens())


class _Attention(nn.Module):
    """A block with attention, as in most models."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.project = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.project(self.norm(x)).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))


def _fit(device: str, wrap: Callable[[Any], Any] = lambda model: model) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(_Attention(), _Attention(), nn.Linear(32, 8)).to(device)
    call = wrap(model)
    x = torch.randn(4, 8, 32).to(device)
    target = torch.randint(0, 8, (4, 8)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(call(x).flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.item()))
    return losses


@PROGRAMS("torch.compile, eager")
def compile_eager(device: str) -> list[float]:
    """Train what Dynamo captures and runs as it is."""
    return _fit(device, lambda model: torch.compile(model, backend="eager", fullgraph=True))


@PROGRAMS("torch.compile, aot_eager")
def compile_aot_eager(device: str) -> list[float]:
    """Train with forward and backward captured by AOTAutograd."""
    return _fit(device, lambda model: torch.compile(model, backend="aot_eager", fullgraph=True))


@PROGRAMS("mixed precision, bfloat16")
def autocast(device: str) -> list[float]:
    """Train under torch.autocast."""

    def wrap(model: Any) -> Any:
        def call(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(device, dtype=torch.bfloat16):
                found: torch.Tensor = model(x)
            return found.float()

        return call

    return _fit(device, wrap)


@PROGRAMS("mixed precision, float16 with GradScaler")
def grad_scaler(device: str) -> list[float]:
    """Train in float16 with a scaled loss; the second step overflows and is left out."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).to(device)
    x, target = torch.randn(8, 32).to(device), torch.randn(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**10)
    losses = []
    for step in range(STEPS):
        with torch.autocast(device, dtype=torch.float16):
            found = model(x)
        loss = nn.functional.mse_loss(found.float(), target)
        scaler.scale(loss * (1e30 if step == 1 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(float(loss.item()))
    return [*losses, scaler.get_scale()]


@PROGRAMS("safetensors")
def safetensors(device: str) -> list[float]:
    """Save the weights, load them straight onto the device, and go on."""
    from safetensors.torch import load_file, save_file

    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(device)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        save_file(model.state_dict(), path)
        loaded = load_file(path, device=device)
    assert all(tensor.device.type == device for tensor in loaded.values())
    other = nn.Linear(8, 8).to(device)
    other.load_state_dict(loaded)
    x = torch.ones(2, 8, device=device)
    return [float(other(x).sum().item()), float((other(x) - model(x)).abs().max().item())]


@PROGRAMS("torch.accelerator")
def accelerator(device: str) -> list[float]:
    """Find the device, and use its streams, events and memory, without its name."""
    if device == "cpu":
        return [42.0]
    found = torch.accelerator.current_accelerator()
    assert found is not None
    assert found.type == device
    # A process has one hpu, whatever the machine has.
    last = 0 if device == "hpu" else torch.accelerator.device_count() - 1
    torch.accelerator.set_device_index(last)
    assert torch.accelerator.current_device_index() == last
    stream = torch.Stream(device=device)
    before = torch.accelerator.memory_allocated()
    with stream:
        x = torch.full((6, 7), 1.0, device=device)
        event = stream.record_event()
    event.synchronize()
    torch.accelerator.current_stream().wait_event(event)
    assert torch.accelerator.memory_allocated() > before
    torch.accelerator.synchronize()
    torch.accelerator.set_device_index(0)
    return [float(x.sum().item())]


@PROGRAMS("DataLoader, pinned memory and workers")
def data_loader(device: str) -> list[float]:
    """Load rows by worker processes into pinned memory, and copy them while the device works."""
    rows = torch.arange(24, dtype=torch.float32).reshape(12, 2)
    data = torch.utils.data.TensorDataset(rows)
    # Before the device is used: as on hardware, a process that is forked later cannot use it.
    loader = torch.utils.data.DataLoader(
        data, batch_size=4, num_workers=2, pin_memory=device != "cpu", multiprocessing_context="spawn"
    )
    sums = []
    for (part,) in loader:
        assert part.is_pinned() == (device != "cpu")
        sums.append(float(part.to(device, non_blocking=True).sum().item()))
    return sums


@PROGRAMS("torch.save and torch.load")
def save_and_load(device: str) -> list[float]:
    """Save model and optimizer, load them onto the device and onto the CPU, and go on."""

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Linear(8, 8).to(device)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
        loss = model(torch.ones(2, 8, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.item())

    model, optimizer = make()
    losses = [step(model, optimizer) for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.pt")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        after = step(model, optimizer)
        for place in (device, "cpu"):
            state = torch.load(path, map_location=place, weights_only=True)
            assert all(value.device.type == place for value in state["model"].values())
            other, restored = make()
            other.load_state_dict(state["model"])
            restored.load_state_dict(state["optimizer"])
            assert step(other, restored) == after
    return [*losses, after]
