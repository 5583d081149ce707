# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a record keeps of a run: digests that stand for their tensors, files, and initial parameters."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from accel_compare import draws
from accel_compare.difference import distance
from accel_compare.digest import digest
from accel_compare.parameters import InitialParameters
from accel_compare.record import FORWARD, Writer, read
from accel_core.errors import InvalidInput

# --- digests: what differs in the tensor differs in the digest, by about as much


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (32, 5), (4096,), (3, 4097), (300, 500), (0, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_equal_tensors_have_equal_digests(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = (_normal(*shape) * 10).to(dtype)
    assert digest(tensor) == digest(tensor.clone())
    assert distance(digest(tensor), digest(tensor.clone())) == 0


@pytest.mark.parametrize("relative", [1e-5, 1e-3, 0.1])
def test_distance_is_about_the_relative_difference(relative: float) -> None:
    tensor = _normal(300, 500)
    others = [tensor + relative * _normal(300, 500, seed=seed) for seed in range(1, 20)]
    found = [distance(digest(tensor), digest(other)) for other in others]
    assert relative / 3 < sorted(found)[len(found) // 2] < 3 * relative
    assert max(found) < 8 * relative


CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one element": lambda x: x.index_put((torch.tensor([17]), torch.tensor([3])), torch.tensor(1.5)),
    "two elements swapped": lambda x: x[:, [1, 0, *range(2, x.shape[1])]],
    "rows shifted": lambda x: x.roll(1, 0),
    "one sign": lambda x: torch.cat([-x[:1], x[1:]]),
    "a factor": lambda x: x * (1 + 1e-5),
    "truncated to bfloat16": lambda x: (x.view(torch.int32) & -65536).view(torch.float32),
    "an offset": lambda x: x + 1e-4,
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_is_larger_than_rounding(change: str) -> None:
    tensor = _normal(200, 300)
    rounded = (tensor.double() * (1 + 6e-8 * _normal(200, 300, seed=1))).float()
    noise = distance(digest(tensor), digest(rounded))
    assert noise < 1e-6
    assert distance(digest(tensor), digest(CHANGES[change](tensor))) > 4 * noise


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite_differs_from_all_others(value: float) -> None:
    tensor = _normal(50, 60)
    spoiled = tensor.clone()
    spoiled[3, 4] = value
    assert distance(digest(tensor), digest(spoiled)) == math.inf
    assert distance(digest(spoiled), digest(spoiled.clone())) == 0
    assert str(digest(spoiled)).endswith("1 NaN" if math.isnan(value) else "1 Inf")


def test_the_same_values_at_other_places_differ() -> None:
    causal = torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
    assert distance(digest(causal), digest(causal.t())) == math.inf
    assert distance(digest(causal), digest(-causal)) == math.inf
    assert distance(digest(causal), digest(causal.clone())) == 0


def test_strides_do_not_matter() -> None:
    tensor = _normal(20, 30)
    assert digest(tensor.t().contiguous().t()) == digest(tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.complex(torch.arange(3.0), torch.arange(3.0)),
        torch.eye(3).to_sparse(),
        torch.quantize_per_tensor(torch.arange(4.0), 0.5, 0, torch.quint8),
        torch.arange(4.0).to(torch.float8_e4m3fn),
    ],
    ids=["complex", "sparse", "quantized", "float8"],
)
def test_other_kinds_of_tensors_have_digests(tensor: torch.Tensor) -> None:
    assert digest(tensor).norm > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_of_the_program_does_not_round_a_digest(dtype: torch.dtype) -> None:
    tensor = _normal(300, 50)
    plain = digest(tensor)
    with torch.autocast("cpu", dtype=dtype):
        assert digest(tensor) == plain


# --- files: what is written is read; a file that was cut off, edited or made by others is refused by name


def _write(folder: Path, rank: int = 0, world: int = 1, limit: int = 1 << 20) -> Path:
    path = folder / f"rank{rank}.jsonl"
    writer = Writer(path, rank, world, "cpu", limit)
    for _ in range(3):
        number = writer.digest(digest(torch.arange(5.0)))
        writer.event(0, FORWARD, "model.a", "Linear", [number], [number], 0)
    writer.close()
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    _write(tmp_path, 0, 2)
    _write(tmp_path, 1, 2)
    ranks = read(tmp_path)
    assert [rank.rank for rank in ranks] == [0, 1]
    assert [event.key.nth for event in ranks[0].events] == [0, 1, 2]
    assert ranks[0].events[0].results == (digest(torch.arange(5.0)),)
    assert ranks[0].whole


def test_record_of_a_killed_rank_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    path = _write(tmp_path)
    path.write_text(path.read_text()[:-40])
    (rank,) = read(tmp_path)
    assert not rank.whole
    assert 2 <= len(rank.events) <= 3


def test_limit_ends_the_record_and_not_the_program(tmp_path: Path) -> None:
    _write(tmp_path, limit=400)
    (rank,) = read(tmp_path)
    assert not rank.whole
    assert len(rank.events) < 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"schema":1', '"schema":2'),
        ('"world":1', '"world":1000000000000'),
        ('"in":[0]', '"in":[99999]'),
        ('"in":[0]', '"in":' + "[" * 5000 + "]" * 5000),
        ('"event":[0,"forward"', '"event":[0,"sideways"'),
        ('"norm":', '"norm":NaN,"old":'),
        ('"shape":[5]', '"shape":[-5]'),
    ],
)
def test_edited_record_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = _write(tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidInput, match="ACC-701"):
        read(tmp_path)


def test_folder_without_all_ranks_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, 0, 2)
    with pytest.raises(InvalidInput, match=r"files of ranks \[0\]"):
        read(tmp_path)


# --- initial parameters: kept within their limit, and loaded into the same model alone

_LIMIT = 1 << 20


def model(seed: int, width: int = 4) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, width), nn.Linear(width, 2))


def values(one: nn.Module) -> list[float]:
    return torch.cat([parameter.detach().flatten() for parameter in one.parameters()]).tolist()


def keep(folder: Path, *models: nn.Module, limit: int = _LIMIT) -> list[str]:
    initial = InitialParameters(folder, limit, load=False)
    return [initial.of(one, 0) for one in models]


def load(folder: Path, *models: nn.Module) -> list[str]:
    initial = InitialParameters(folder, 0, load=True)
    with torch.no_grad():
        return [initial.of(one, 0) for one in models]


def test_models_get_the_parameters_that_were_kept_in_their_order(tmp_path: Path) -> None:
    keep(tmp_path, model(0), model(1))
    here = [model(2), model(3)]
    assert all("are loaded from the record: 4 tensors" in note for note in load(tmp_path, *here))
    assert [values(one) for one in here] == [values(model(0)), values(model(1))]


def test_model_that_runs_again_keeps_what_it_has_learnt(tmp_path: Path) -> None:
    keep(tmp_path, model(0))
    here = model(1)
    initial = InitialParameters(tmp_path, 0, load=True)
    with torch.no_grad():
        initial.of(here, 0)
        here[0].weight.zero_()
        assert initial.of(here, 0) == ""
        assert initial.of(nn.Sequential(here), 0) == ""
    assert not here[0].weight.any()


def test_more_than_the_limit_is_not_kept_and_said(tmp_path: Path) -> None:
    notes = keep(tmp_path, model(0), model(0, 40_000), model(1), limit=1 << 18)
    assert ["are kept" in note for note in notes] == [True, False, True]
    assert "0.92 MiB, and 0.25 MiB of --parameters are left" in notes[1]
    here = [model(5), model(5, 40_000), model(5)]
    assert "the record has none" in load(tmp_path, *here)[1]
    assert values(here[2]) == values(model(1))


def test_another_model_keeps_its_own_parameters(tmp_path: Path) -> None:
    keep(tmp_path, model(0))
    here = model(1, 5)
    assert "the record has others: 0.bias [4]" in load(tmp_path, here)[0]
    assert values(here) == values(model(1, 5))


@pytest.mark.parametrize("content", [b"", b"no file of torch", b"\x80\x04cos\nsystem\n(S'true'\ntR."])
def test_file_that_is_damaged_or_hostile_is_named_and_the_program_goes_on(tmp_path, content) -> None:
    (tmp_path / "rank0.0.pt").write_bytes(content)
    here = model(1)
    assert "are not loaded: " in load(tmp_path, here)[0]
    assert values(here) == values(model(1))


def test_folder_that_cannot_be_written_is_named_and_the_program_goes_on(tmp_path: Path) -> None:
    assert "are not kept: " in keep(tmp_path / "nowhere", model(0))[0]


def test_lazy_parameters_and_those_without_values_are_left_out(tmp_path: Path) -> None:
    assert keep(tmp_path, nn.LazyLinear(3), nn.Linear(2, 2, device="meta"), nn.Identity()) == [""] * 3


def test_generator_keeps_its_state_while_others_draw() -> None:
    def generator(seeds: list[int]) -> Any:
        there = {"initial_seed": lambda: seeds[-1], "manual_seed": seeds.append}
        return SimpleNamespace(device=torch.device("meta"), **there)

    ours, other, expected = generator([3]), generator([4]), torch.Generator().manual_seed(3)
    for each in (ours, *[other] * 1001, ours):
        with draws._cpu(each) as own:
            drawn = torch.rand(2, generator=own)
    torch.rand(2, generator=expected)
    assert torch.equal(drawn, torch.rand(2, generator=expected))
