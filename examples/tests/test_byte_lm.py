# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The parts of the example that need no run: its text, batches, model, and what it says; no device is named in it."""

import io
import re
import shutil
import time
from pathlib import Path

import pytest
import torch
from byte_lm import progress
from byte_lm.corpus import SEPARATOR, VALIDATION_SHARE, load_corpus, unigram_entropy
from byte_lm.model import ByteGPT, ModelShape, generate, printable
from byte_lm.progress import EVALUATIONS, TrainingProgress, working
from byte_lm.training import LAST_RATE, SETTLED, Schedule, TrainingWindows, rate_factor, validation_windows
from rich.console import Console

# --- the text, and its split

PLENTY = 10**9


def test_the_split_is_by_file_and_covers_all_text(texts: Path) -> None:
    corpus = load_corpus(texts, PLENTY)
    names = {path.name for path in texts.iterdir()}
    assert set(corpus.train_files) | set(corpus.validation_files) == names
    assert not set(corpus.train_files) & set(corpus.validation_files)
    for side, files in ((corpus.train, corpus.train_files), (corpus.validation, corpus.validation_files)):
        assert side == b"".join(SEPARATOR + (texts / name).read_bytes() for name in files)
    assert 0 < len(corpus.validation) <= 1.01 * VALIDATION_SHARE * len(corpus.train + corpus.validation)


def test_the_order_does_not_depend_on_the_file_system(texts: Path, tmp_path: Path) -> None:
    for path in sorted(texts.iterdir(), reverse=True):
        shutil.copy(path, tmp_path)
    first, again = load_corpus(texts, PLENTY), load_corpus(tmp_path, PLENTY)
    assert (first.train, first.validation) == (again.train, again.validation)
    assert first.fingerprint == again.fingerprint


def test_a_copy_of_a_file_does_not_leak_into_the_other_side(texts: Path, tmp_path: Path) -> None:
    shutil.copytree(texts, tmp_path, dirs_exist_ok=True)
    shutil.copytree(texts, tmp_path / "copies")
    corpus = load_corpus(tmp_path, PLENTY)
    for number in range(40):
        line = f"file {number:02d} line".encode()
        assert (line in corpus.train) != (line in corpus.validation)


def test_files_that_are_hidden_or_binary_are_not_text(texts: Path, tmp_path: Path) -> None:
    shutil.copytree(texts, tmp_path, dirs_exist_ok=True)
    (tmp_path / ".hidden").write_text("hidden")
    (tmp_path / "picture").write_bytes(b"\x89PNG\0\0")
    assert load_corpus(tmp_path, PLENTY).fingerprint == load_corpus(texts, PLENTY).fingerprint


def test_the_end_of_a_single_file_is_held_out(tmp_path: Path) -> None:
    text = b"".join(b"line %06d\n" % number for number in range(9000))
    (tmp_path / "book.txt").write_bytes(text)
    corpus = load_corpus(tmp_path, PLENTY)
    assert corpus.train[1:] + corpus.validation[1:] == text
    assert len(corpus.validation) == pytest.approx(VALIDATION_SHARE * len(text), rel=0.01)


def test_no_more_is_read_than_asked_for(texts: Path) -> None:
    corpus = load_corpus(texts, 70_000)
    files = len(corpus.train_files) + len(corpus.validation_files)
    assert len(corpus.train) + len(corpus.validation) - files == 70_000


def test_the_default_text_is_the_standard_library_without_installed_packages() -> None:
    corpus = load_corpus(None, PLENTY)
    names = {*corpus.train_files, *corpus.validation_files}
    assert {"argparse.py", "json/decoder.py"} <= names
    assert not [name for name in names if "site-packages" in name or not name.endswith(".py")]


@pytest.mark.parametrize(
    ("text", "bits"), [(b"aaaa", 0), (b"abab", 1), (bytes(range(256)), 8), (b"aaab", 0.811278)]
)
def test_known_values(text: bytes, bits: float) -> None:
    assert unigram_entropy(text) == pytest.approx(bits, abs=1e-6)


# --- windows of the text, and the schedule

TEXT = bytes(range(256)) * 5  # 1280 bytes: 79 windows of 16


def test_targets_are_the_inputs_one_byte_later() -> None:
    inputs, targets = TrainingWindows(TEXT, 16, seed=1).batch(0, 4)
    assert inputs.shape == targets.shape == (4, 16)
    assert torch.equal(targets, (inputs + 1) % 256)


def test_an_epoch_shows_every_window_once() -> None:
    windows = TrainingWindows(bytes(range(250)), 16, seed=1)
    inputs, _ = windows.batch(0, windows.count)
    assert sorted(inputs[:, 0].tolist()) == list(range(0, 16 * windows.count, 16))


def test_epochs_and_seeds_differ_in_order() -> None:
    windows, other = TrainingWindows(TEXT, 16, seed=1), TrainingWindows(TEXT, 16, seed=2)
    first, _ = windows.batch(0, windows.count)
    second, _ = windows.batch(windows.count, windows.count)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other.batch(0, other.count)[0])


def test_a_batch_is_the_same_whatever_came_before() -> None:
    after_others = TrainingWindows(TEXT, 16, seed=1)
    for first in range(0, 200, 8):
        after_others.batch(first, 8)
    fresh = TrainingWindows(TEXT, 16, seed=1)
    assert torch.equal(after_others.batch(72, 16)[0], fresh.batch(72, 16)[0])  # across the end of an epoch


def test_ranks_validate_on_as_many_windows_each() -> None:
    assert len(validation_windows(TEXT, 16, most=1000, ranks=2)) == 78
    spread = validation_windows(TEXT, 16, most=10, ranks=3)
    assert [int(window[0]) for window in spread] == [i * 79 // 9 * 16 % 256 for i in range(9)]
    assert {len(window) for window in spread} == {17}


def test_in_good_time_the_clock_changes_nothing() -> None:
    schedule = Schedule(steps=100, seconds=50)
    assert all(schedule.progress(step, elapsed=0.3 * step) == step / 100 for step in range(101))


def test_a_slow_machine_ends_in_time_and_early() -> None:
    schedule = Schedule(steps=100, seconds=50)
    assert schedule.progress(30, elapsed=25) == 0.5
    assert schedule.progress(60, elapsed=50) == 1.0


def test_a_slow_first_step_is_no_reason_to_hurry() -> None:
    assert Schedule(steps=100, seconds=50).progress(SETTLED - 1, elapsed=45) == (SETTLED - 1) / 100


def test_a_resumed_run_has_the_time_for_what_is_left() -> None:
    schedule = Schedule(steps=100, first=60, seconds=50)
    assert schedule.progress(60, elapsed=0) == 0.6
    assert schedule.progress(60 + SETTLED, elapsed=25) == pytest.approx(0.8)


def test_the_rate_rises_to_its_peak_and_falls_to_its_floor() -> None:
    rates = [rate_factor(step / 1000) for step in range(1001)]
    top = rates.index(max(rates))
    assert rates[0] == 0
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[top] > 0.98
    assert rates[-1] == pytest.approx(LAST_RATE)


# --- the model: its shapes, that no position sees a later byte, and what it says before and after training

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


# --- what a run says while it trains: the time that is left, and that it lives


class Clock:
    """A clock that a test moves on."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def view(begin: float = 0.0) -> TrainingProgress:
    return TrainingProgress(Console(file=io.StringIO(), width=200), begin)


def said(shown: TrainingProgress) -> list[str]:
    return shown.console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_time_left_has_the_validations_that_are_ahead(clock: Clock) -> None:
    shown = view()
    clock.now += 10.0
    shown.update(0.5, 5, 2.0, 1.0)
    clock.now += 8.0
    shown.validation_ended(8.0)
    shown.update(0.55, 5, 2.0, 1.0)
    assert said(shown)[0].endswith("0:10 left")
    seconds = round(10 / 0.55 * 0.45 + 8 * (EVALUATIONS - 1))
    assert said(shown)[1].endswith(f"{seconds // 60}:{seconds % 60:02d} left")


def test_a_long_validation_gives_a_sign_of_life_and_a_short_one_none(clock: Clock) -> None:
    shown = view()
    clock.now += 1.0
    shown.validating(0.3)
    assert said(shown) == []
    clock.now += 1.0
    shown.validating(0.6)
    shown.validating(0.7)
    assert [line.strip() for line in said(shown)] == ["validating: 60%"]


def test_a_terminal_shows_the_time_left_in_its_bar(clock: Clock) -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with TrainingProgress(console, 0.0) as shown:
        clock.now += 10.0
        shown.update(0.5, 5, 2.0, 1.0)
        assert shown.bar.tasks[0].fields["left"] == "0:10 left"
        shown.validating(0.5)
        assert shown.bar.tasks[0].description == "validating: 50%"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENCE", 0.02)


def wait_for(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    shown, deadline = "", time.monotonic() + 60
    while text not in shown and time.monotonic() < deadline:
        time.sleep(0.01)
        shown += capsys.readouterr().out
    return shown


@pytest.mark.usefixtures("impatient")
def test_a_step_is_named_and_lives_until_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with working("importing"):
        shown = wait_for("so far\n", capsys)
    assert re.match(r"importing …\n      \d+ s so far\n", shown)
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("impatient")
def test_only_the_rank_that_prints_speaks(capsys, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with working("importing"):
        time.sleep(0.1)
    assert capsys.readouterr().out == ""


# --- the promise of the example: no device name stands in it, not even in a comment

EXAMPLES = Path(__file__).parent.parent
NAMES = "cuda|xpu|npu|hpu|mlu|sdaa|mps|cpu|gpu|nccl|gloo"
DEVICES = re.compile(rf"(?<![a-z0-9])({NAMES})(?![a-z0-9])", re.IGNORECASE)
ALLOWED = re.compile(r"os\.cpu_count|train_micro_batch_size_per_gpu")  # names that Python and DeepSpeed gave
SOURCES = [path for part in ("", "byte_lm/", "sharded_lm/") for path in EXAMPLES.glob(f"{part}*.py")]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_device_is_named(source: Path) -> None:
    text = ALLOWED.sub("", source.read_text(encoding="utf-8"))
    assert DEVICES.findall(text) == []


def test_the_check_sees_names_in_all_disguises() -> None:
    disguises = (
        "torch.cuda.empty_cache()",
        'x.to("cpu")',
        "x.npu()",
        'f"mps:{i}"',
        "USE_HPU",
        "is_xpu_there",
    )
    assert [line for line in disguises if not DEVICES.search(line)] == []
