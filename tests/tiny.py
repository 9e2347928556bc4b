"""Tiny random models in memory, for tests that need no files."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dgpp.checkpoint.fixture import with_tokenizer
from dgpp.checkpoint.spec import flatten, nested
from dgpp.engine.core import Core
from dgpp.engine.settings import CoreSettings
from dgpp.formats import Weight
from dgpp.models import FAMILIES, Family

VOCAB = 259


@cache
def tiny(release: str = "tiny", family: str = "llama") -> tuple[Family, Any, dict[str, Any]]:
    """(family, config, weights) of a release in miniature, with a vocabulary of 259."""
    found = FAMILIES[family]
    raw = with_tokenizer(found.releases[release].config)
    text = {**raw.get("text_config", raw), "vocab_size": VOCAB}
    config = found.config({**raw, "text_config": text} if "text_config" in raw else text)
    rng = np.random.default_rng(0)
    weights: dict[str, Weight] = {}
    for path, spec in flatten(found.abstract(config)):
        shape = ((spec.layers,) if spec.layers else ()) + spec.shape
        noise = rng.standard_normal(shape).astype(np.float32)
        values = spec.centre + 0.1 * noise if len(spec.shape) == 1 else noise / np.sqrt(np.float32(spec.shape[-1]))
        weights[path] = Weight({} if spec.values else spec.codec.encode(values), spec.format, spec.shape, spec.numbers)
    return found, config, nested(weights.items())


def tiny_core(release: str = "tiny", **settings: Any) -> Core:
    """A core on a tiny model; the defaults are small so that page borders and full pools are near."""
    layout = {"slots": 4, "pool_tokens": 512, "page_tokens": 16, "row_families": (16, 64, 128), **settings}
    return Core(*tiny(release), CoreSettings(**layout))


def tokens(count: int, seed: int = 1) -> tuple[int, ...]:
    """`count` random ids."""
    return tuple(np.random.default_rng(seed).integers(0, VOCAB, count).tolist())
