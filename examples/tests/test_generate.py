# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""generate.py: a model divided among two processes makes the whole model's tokens, and its input is judged."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from byte_lm.errors import BadInput
from sharded_lm.options import parse

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11),
    reason="not run: no release of transformers 5.23 is for Python 3.10 (requirements-hf.txt)",
)
SCRIPT = Path(__file__).parent.parent / "generate.py"
TINY = ("--layers", "2", "--width", "32", "--heads", "4", "--key_value_heads", "2", "--tokens", "6")
#: Keep the ports of these tests from others that ask for any free one.
HELD: list[socket.socket] = []


def launch() -> list[str]:
    """Arguments for Python that start two ranks, at a port that no other test has."""
    probe = socket.socket()
    probe.bind(("", 0))
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store, which may listen here
    HELD.append(probe)
    port = str(probe.getsockname()[1])
    return f"-m accel_launch --num_accelerators 2 --bind_cores_to_rank --master_port {port}".split()


def texts(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "made.json").read_text(encoding="utf-8"))["texts"]
    return found


@pytest.fixture(scope="module")
def alone(python: Callable, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """The tokens of one process."""
    folder = tmp_path_factory.mktemp("alone")
    result = python(folder, SCRIPT, *TINY, "--json", "made.json")
    assert result.returncode == 0, result.stderr
    assert "one rank: nothing is divided" in result.stdout
    (text,) = texts(folder)
    assert text["collectives"] == 0
    tokens: list[int] = text["token_ids"]
    return tokens


@pytest.mark.sample("shm")
@pytest.mark.parametrize("backend", ["shm", "gloo"])
def test_two_ranks_make_the_tokens_of_one_process(backend, alone, tmp_path, python) -> None:
    flags = (*TINY, "--check", "--backend", backend, "--json", "made.json")
    result = python(tmp_path, *launch(), SCRIPT, *flags)
    assert result.returncode == 0, result.stderr
    (text,) = texts(tmp_path)
    assert text["token_ids"] == alone
    # Two in each layer and one of the head, for the prompt and each token after it.
    assert text["collectives"] == 5 * text["tokens"] == 30
    assert 0 < text["share_in_collectives"] < 1
    assert "divided among 2 ranks" in result.stdout
    assert f"collectives of {backend}" in result.stdout
    assert result.stdout.count("check: the same 6 tokens") == 1


@pytest.mark.slow
def test_typed_prompts_are_answered_on_all_ranks_until_the_input_ends(tmp_path: Path) -> None:
    flags = (*TINY, "--positions", "20", "--interactive", "--json", "made.json")
    result = subprocess.run(
        [sys.executable, *launch(), str(SCRIPT), *flags], input=f"ab\n\n{'long ' * 9}\ncd\n",
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert [text["prompt"] for text in texts(tmp_path)] == ["ab", "cd"]
    assert result.stdout.count("an empty prompt") == 1
    assert result.stdout.count("45 tokens of prompt and 6 to generate") == 1


def test_ctrl_c_ends_a_run_with_a_word(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), *TINY[:-1], "900", "--repeat", "1000"]
    # A run in the background ignores it, and so would its children.
    heeding = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        signal.signal(signal.SIGINT, heeding)
        assert process.stdout is not None
        while not process.stdout.readline().startswith("model:"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.rstrip().endswith("interrupted")
    assert "Traceback" not in errors


@pytest.mark.slow
def test_a_folder_s_model_answers_as_transformers_does(tmp_path: Path, python: Callable) -> None:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(f"word{n}" for n in range(40))}
    plain = Tokenizer(models.WordLevel(words, unk_token="word0"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=plain).save_pretrained(tmp_path / "given")
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        initializer_range=0.3, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path / "given")
    wanted = model.generate(torch.tensor([[5, 7]]), max_new_tokens=6, do_sample=False)[0, 2:].tolist()

    flags = ("--model", "given", "--prompt", "word5 word7", "--tokens", "6", "--json", "made.json")
    result = python(tmp_path, SCRIPT, *flags)

    assert result.returncode == 0, result.stderr
    assert texts(tmp_path)[0]["token_ids"] == wanted
    assert "word5 word7" + " ".join(f"word{n}" for n in wanted) in result.stdout.replace("\n", "")


REFUSED = {
    "unknown model": (("--model", "nowhere"), "--model nowhere: no such folder"),
    "empty prompt": (("--prompt", ""), "--prompt ''"),
    "bad dtype": (("--dtype", "fp7"), "--dtype fp7"),
    "typed prompts to check": (("--interactive", "--check"), "--interactive with --check"),
}


@pytest.mark.sample("unknown model", "bad dtype")
@pytest.mark.parametrize("case", REFUSED)
def test_input_is_refused_before_anything_is_loaded(case, tmp_path, monkeypatch) -> None:
    flags, found = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as caught:
        parse(flags)
    assert found in caught.value.found


def test_what_the_model_cannot_do_is_refused() -> None:
    from sharded_lm.generation import check_length
    from sharded_lm.model import check_divisible
    from sharded_lm.run import compare
    from transformers import LlamaConfig

    model = SimpleNamespace(
        config=LlamaConfig(max_position_embeddings=20, num_attention_heads=4, num_key_value_heads=1)
    )
    check_length(model, [1] * 14, 6)
    check_divisible(model, 1)
    compare([1, 2, 3], [1, 2, 3], "fp32")
    for call, found in (
        (lambda: check_length(model, [], 6), "a prompt without tokens"),
        (lambda: check_length(model, [1] * 15, 6), "15 tokens of prompt and 6"),
        (lambda: check_divisible(model, 2), "4 attention heads and 1 key-value heads"),
        (lambda: check_divisible(model, 3), "4 attention heads and 1 key-value heads"),
        (lambda: compare([1, 9, 3], [1, 2, 3], "fp32"), "a difference at token 1 of 3"),
        (lambda: compare([1, 2], [1, 2, 3], "fp32"), "a difference at token 2 of 3"),
    ):
        with pytest.raises(BadInput, match=found):
            call()
