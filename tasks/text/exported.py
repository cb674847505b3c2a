"""Taggers for services without torch: their weights beside a file of plain Python."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from structsmooth import __version__
from structsmooth.checkpoint import write_atomic
from structsmooth.files import writing
from structsmooth.text import standalone
from structsmooth.text.encoders import AttributeEncoder, DictionaryEncoder, HashingEncoder
from structsmooth.text.tagger import Tagger
from structsmooth.text.templates import Template, Templates


def write_tagger(
    folder: Path,
    tagger: Tagger,
    encoder: AttributeEncoder,
    templates: Templates,
    clitics: list[str],
    weights: Tensor,
    temperature: float | None,
) -> None:
    """Write ``tagger.py``, ``tagger.json`` and ``weights.npz`` into a folder, which is made if need be.

    Attributes without weights are left out.

    Raises:
        ValueError: a pretrained encoder, or templates with functions of their own, which the program does not have.
    """
    if not isinstance(encoder, DictionaryEncoder | HashingEncoder):
        remedy = "load(DIR).predict serves the model, and one that is trained without encoder is exported"
        raise ValueError(f"the program in numpy has attributes of words, and no pretrained encoder: {remedy}")
    if unknown := sorted({_spelling(template)[0] for template in templates} - {*standalone.SPELLINGS}):
        raise ValueError(f"templates: the program in numpy lacks what spells their attributes, {', '.join(unknown)}")
    folder.mkdir(parents=True, exist_ok=True)
    states = len(tagger.tags.names)
    rows, transition, ends = weights.detach().double().view(-1, states).tensor_split([-states - 2, -2])
    transition = tagger.transition_scale * transition
    if (mask := tagger.tags.mask) is not None:
        transition = transition + mask.transition
        ends = ends + torch.stack([mask.start, mask.stop])
    used = rows.any(1).nonzero()[:, 0].tolist()
    model = {
        "structsmooth": __version__,
        "temperature": temperature,
        "tags": tagger.tags.names,
        "bits": encoder.bits if isinstance(encoder, HashingEncoder) else None,
        "attributes": [encoder.attributes[i] for i in used] if isinstance(encoder, DictionaryEncoder) else [],
        "templates": [(template.cells, *_spelling(template)) for template in templates],
        "clitics": clitics,
    }
    with writing(folder / "weights.npz"):
        np.savez(
            folder / "weights.npz", rows=rows[used].numpy(), buckets=np.array(used), transition=transition, ends=ends
        )
    write_atomic(folder / "tagger.json", json.dumps(model, ensure_ascii=False))
    shutil.copyfile(standalone.__file__, folder / "tagger.py")


def _spelling(template: Template) -> tuple[str, tuple[object, ...]]:
    """The name of the function that spells the attributes of a template, and its first arguments."""
    spell = template.spell
    function, arguments = (spell.func, spell.args) if isinstance(spell, partial) else (spell, ())
    return function.__name__, arguments
