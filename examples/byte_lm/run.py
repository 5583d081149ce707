# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One run from its first line on the screen to its last: set up, train, save, show."""

from __future__ import annotations

import copy
import time
from typing import Any

import deepspeed
import torch
from deepspeed import comm
from deepspeed.accelerator import get_accelerator
from rich.console import Console

from byte_lm import checkpoint, ranks, report
from byte_lm.corpus import SEPARATOR, unigram_entropy
from byte_lm.errors import BadInput, has_advice
from byte_lm.job import Job
from byte_lm.model import ByteGPT, ModelShape, generate, printable
from byte_lm.progress import TrainingProgress, working
from byte_lm.training import Schedule, Trainer, TrainingWindows, mean_over_ranks, validation_windows

VALIDATION_WINDOWS = 256


def run(job: Job) -> None:
    """Train on all ranks of the job and leave the results in its output folder; raises BadInput."""
    console = Console(quiet=not ranks.speaks(), markup=False, highlight=False, soft_wrap=True)
    accelerator = report.describe_accelerator()
    console.print(accelerator["why"])
    with working("setting up the ranks' group and DeepSpeed's engine"):
        trainer = make_trainer(job)
    introduce(console, job, trainer)
    with TrainingProgress(console, trainer.state.step / job.options.steps) as view:
        seconds = trainer.run(view)
    with working("saving the checkpoint"):
        saved = trainer.save()
    with working("generating a sample"):
        text = sample(job, trainer.engine)
    if ranks.speaks():
        conclude(console, job, trainer, accelerator, text, seconds)
        console.print(
            f"wrote {job.options.out}/loss.png, summary.json and {saved.relative_to(job.options.out)}"
        )


def leave() -> None:
    """End this process's part in the job; without it torch complains at exit."""
    if comm.is_initialized():
        comm.destroy_process_group()


def make_trainer(job: Job) -> Trainer:
    """The engine on this rank's device, the data, and the state the run begins with; raises BadInput."""
    options = job.options
    get_accelerator().set_device(ranks.local_rank())
    comm.init_distributed(get_accelerator().communication_backend_name(), verbose=False)
    torch.manual_seed(options.seed)
    get_accelerator().manual_seed_all(options.seed)
    shape = ModelShape(options.context, options.layers, options.heads, options.width, options.dropout)
    engine = make_engine(job, ByteGPT(shape))
    torch.manual_seed(options.seed + ranks.rank())  # equal weights, but dropout of its own on each rank
    get_accelerator().manual_seed_all(options.seed + ranks.rank())
    trainer = Trainer(
        engine=engine,
        state=job.state,
        windows=TrainingWindows(job.corpus.train, options.context, options.seed),
        validation=validation_windows(
            job.corpus.validation, options.context, VALIDATION_WINDOWS, ranks.count()
        ),
        schedule=Schedule(options.steps, job.state.step, *mean_over_ranks(engine, job.seconds_left)),
        save=lambda: checkpoint.save(engine, options.out, job.state),
        save_every=options.save_every,
    )
    if job.tag:
        checkpoint.load(engine, options.out, job.tag)
    return trainer


def make_engine(job: Job, model: ByteGPT) -> Any:
    """DeepSpeed's engine around the model; raises BadInput for a configuration that DeepSpeed refuses."""
    config = copy.deepcopy(job.config)  # DeepSpeed writes into it
    try:
        return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        if has_advice(error):
            raise
        raise BadInput(
            f"DeepSpeed cannot use the configuration {job.options.deepspeed_config}.",
            found=f"{type(error).__name__}: {error}",
            expected="a configuration as https://www.deepspeed.ai/docs/config-json/ describes it",
            do="correct the file or the flags that change it (--stage, --offload, --dtype)",
        ) from error


def introduce(console: Console, job: Job, trainer: Trainer) -> None:
    """Say what is trained on what."""
    corpus, engine = job.corpus, trainer.engine
    console.print(
        f"text: {corpus.source}: {len(corpus.train):,} bytes of {len(corpus.train_files)} files to train on, "
        f"{len(corpus.validation):,} of {len(corpus.validation_files)} others to validate"
    )
    console.print(
        f"model: {engine.module.size:,} parameters, context {job.options.context}; "
        f"{ranks.count()} rank(s), ZeRO stage {engine.zero_optimization_stage()}, {dtype(engine)}"
    )
    if job.tag:
        console.print(f"resumed: {job.tag} of {job.options.steps}")


def dtype(engine: Any) -> str:
    """Name of the type that the model computes in."""
    return str(next(engine.module.parameters()).dtype).removeprefix("torch.")


def sample(job: Job, engine: Any) -> str:
    """Return the text that the model writes after the prompt."""
    prompt = job.options.prompt.encode() or SEPARATOR
    engine.eval()
    text = generate(
        engine,
        prompt,
        job.options.sample,
        context=job.options.context,
        device=engine.device,
        seed=job.options.seed,
    )
    return printable(text)


def conclude(
    console: Console, job: Job, trainer: Trainer, accelerator: dict[str, str], text: str, seconds: float
) -> None:
    """Write the picture and the figures, and print what matters of them."""
    state, out = trainer.state, job.options.out
    entropy = unigram_entropy(b"".join(bytes(window[1:].tolist()) for window in trainer.validation))
    last = state.validation_loss[-1][1]
    with working("drawing the loss"):
        report.draw_losses(out, state.train_loss, state.validation_loss, entropy)
    summary = {
        "accelerator": accelerator,
        "versions": report.versions(),
        "options": {name: value for name, value in vars(job.options).items() if name != "local_rank"},
        "deepspeed_config": job.config,
        "identity": state.identity,
        "parameters": trainer.engine.module.size,
        "resumed_from": job.tag,
        "steps": state.step,
        "bytes_trained_on": state.windows * job.options.context,
        "training_seconds": seconds,
        "whole_run_seconds": time.monotonic() - job.started,
        "validation_bits_per_byte": last,
        "unigram_entropy_bits_per_byte": entropy,
        "train_loss": state.train_loss,
        "validation_loss": state.validation_loss,
        "text": text,
    }
    report.write_summary(out, summary)
    console.print(f"\nvalidation loss {last:.3f} bits/byte; unigram entropy of the same bytes {entropy:.3f}")
    limited = "" if state.step >= job.options.steps else " (--minutes allows more)"
    steps = f"{state.step} of {job.options.steps} steps{limited}"
    console.print(f"whole run: {steps}, {time.monotonic() - job.started:.0f} s\n\n{text}\n")
