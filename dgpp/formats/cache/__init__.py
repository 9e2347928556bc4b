"""Cache formats: how rows of keys, values, latents and index keys are stored between steps."""

from dgpp.formats.cache.base import CacheFormat, Plane, bytes_per_row
from dgpp.formats.cache.deepseek import FP4Block, FP8Block
from dgpp.formats.cache.index_keys import IndexFP4, IndexFP8
from dgpp.formats.cache.kv_fp8 import KVRows
from dgpp.formats.cache.latent import LatentFP4, LatentFP8
from dgpp.formats.cache.plain import PlainRows

_ALL: tuple[CacheFormat, ...] = (
    PlainRows(),
    KVRows(),
    LatentFP8(),
    LatentFP4(),
    IndexFP8(),
    IndexFP4(),
    FP8Block(),
    FP8Block(group=64, tail=64),
    FP4Block(),
)

CACHE_FORMATS: dict[str, CacheFormat] = {format.name: format for format in _ALL}
"""The cache formats by tag; latent formats with a rotary tail are made as `LatentFP8(tail=64)`."""

__all__ = [
    "CACHE_FORMATS",
    "CacheFormat",
    "FP4Block",
    "FP8Block",
    "IndexFP4",
    "IndexFP8",
    "KVRows",
    "LatentFP4",
    "LatentFP8",
    "Plane",
    "PlainRows",
    "bytes_per_row",
]
