"""Everything before the first row: model, prompt frame, label tokens, backend."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from lengthwise import machine, models
from lengthwise.encode import Encoder
from lengthwise.engine import Engine, Prepared
from lengthwise.labels import choose_style, label_tokens
from lengthwise.options import EngineOptions
from lengthwise.prompt import PromptFrame, build_frame
from lengthwise.records import LabelTokens
from lengthwise.task import Task
from lengthwise.verify import TOLERANCE
from lengthwise.version import __version__

if TYPE_CHECKING:
    from lengthwise.backends.load import LoadedModel

logger = logging.getLogger("lengthwise")


def load_engine(
    task: Task, model: str = models.DEFAULT_MODEL, options: EngineOptions | None = None
) -> Engine:
    """An engine with its labels encoded, its model loaded and its backend tried.

    Raises ModelError, TaskError or OptionError. A model that cannot take the wished strategy gets the
    next simpler one with a note in the report; the model itself is never another than the one named.
    """
    machine.wait_without_spinning()
    from lengthwise.backends import load, select  # noqa: PLC0415 - loads torch and transformers
    from lengthwise.backends.convert import loadable_folder  # noqa: PLC0415
    from lengthwise.backends.reference import HuggingFaceReference  # noqa: PLC0415

    options = options or EngineOptions()
    source = models.resolve(model)
    folder = loadable_folder(source)
    device = load.resolve_device(options.device)
    options = options.resolve(
        device=device,
        dtype=load.resolve_dtype(options.dtype, device),
        threads=options.threads or machine.usable_cpus(),
    )
    tokenizer = load.load_tokenizer(folder)
    encoder = Encoder(tokenizer)
    frame, labels, style = encode_task(task, encoder)
    loaded = load.load_model(
        folder, device=device, dtype=options.dtype, threads=options.threads or 1, tokenizer=tokenizer
    )
    reference = HuggingFaceReference(loaded.model)
    head = encoder.head(frame)
    sample = head or labels.tokens[0]
    backend, notes = select.choose_backend(
        options.strategy, loaded.model, loaded.vocab_size, reference, sample, TOLERANCE[options.dtype]
    )
    prepared = Prepared(
        task=task,
        frame=frame,
        head=head,
        labels=labels,
        length_limit=_smaller(options.max_length, loaded.context_limit),
        alone_above=select.length_limit_for_sharing(loaded.model.config.get_text_config()),
        notes=(*frame.notes, *notes),
    )
    _check_room(prepared, encoder)
    setup = describe(source, loaded, options, prepared, style, backend.name if backend else "sequential")
    return Engine(prepared, encoder, backend, reference, options, setup)


def encode_task(task: Task, encoder: Encoder) -> tuple[PromptFrame, LabelTokens, str]:
    """The task's frame, its labels' tokens and the label style ("text" or "code") for one tokenizer."""
    encoder.refuse_controls(task.own_texts())
    if task.style != "code":
        frame, labels = _encode_answers(task, encoder, task.label_texts)
        if choose_style(task, [len(tokens) for tokens in labels.tokens]) == "text":
            return frame, labels, "text"
    codes = encoder.single_token_codes(build_frame(task, task.label_texts, encoder.render), len(task.labels))
    return (*_encode_answers(task, encoder, codes), "code")


def _encode_answers(task: Task, encoder: Encoder, answers: Sequence[str]) -> tuple[PromptFrame, LabelTokens]:
    frame = build_frame(task, answers, encoder.render)
    prompt, joint = encoder.encode_labels(frame, answers)
    names = [label.value for label in task.labels]
    terminator = encoder.terminator_id(frame)
    return frame, label_tokens(prompt, joint, names, scoring=task.scoring, terminator=terminator)


def _check_room(prepared: Prepared, encoder: Encoder) -> None:
    """Raise TaskError now when not even an empty row would fit the model."""
    encoder.check_room(
        prepared.frame,
        limit=prepared.length_limit,
        reserve=prepared.reserve,
        boundary=prepared.labels.boundary,
    )


def _smaller(first: int | None, second: int | None) -> int | None:
    known = [value for value in (first, second) if value is not None]
    return min(known) if known else None


def describe(
    source: models.ModelSource,
    loaded: LoadedModel,
    options: EngineOptions,
    prepared: Prepared,
    style: str,
    strategy: str,
) -> dict[str, Any]:
    """What the report says about the set-up: model, task, strategy, versions, machine."""
    return {
        "model": source.name,
        "model_kind": source.kind,
        "model_revision": source.revision,
        "model_fingerprint": models.fingerprint(source),
        "architecture": loaded.architecture,
        "parameters": loaded.parameters,
        "context_limit": loaded.context_limit,
        "strategy": strategy,
        "dtype": loaded.dtype,
        "device": loaded.device,
        "threads": options.threads,
        "max_batch_tokens": options.max_batch_tokens,
        "batch_size": options.batch_size,
        "window": options.window,
        "length_limit": prepared.length_limit,
        "head_tokens": len(prepared.head),
        "labels_scored_by": prepared.labels.rule,
        "label_style": style,
        "normalize": prepared.task.normalize,
        "calibrate": prepared.task.calibrate,
        "task": prepared.task.as_dict(),
        "versions": {
            "lengthwise": __version__,
            **{name: metadata.version(name) for name in ("torch", "transformers", "tokenizers")},
        },
        "machine": machine.describe(),
    }
