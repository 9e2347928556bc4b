"""What a device hands over of one row of logits: enough for most draws, and the bits of the host's own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dgpp.engine.sampler.normaliser import folded, of_partials
from dgpp.engine.sampler.prefix import Prefix, scale
from dgpp.kernels.pick import Likeliest


@dataclass(frozen=True)
class Candidates:
    """The first ids of a row's canonical order, and its normaliser at one temperature."""

    prefix: Prefix
    peaks: np.ndarray  # float32 [slices]: the largest logit of each
    partials: np.ndarray  # float64 [slices, chunks]
    temperature: np.float32

    @classmethod
    def of(cls, likeliest: Likeliest, row: int, temperature: np.float32) -> Candidates:
        """Those of a row of host arrays that were made with this temperature."""
        present = int(likeliest.present[row])
        count = min(present, likeliest.ids.shape[1])
        prefix = Prefix(likeliest.ids[row, :count].astype(np.int64), likeliest.logits[row, :count], present)
        partials = np.ascontiguousarray(likeliest.partials[row]).view(np.float64)[..., 0]
        return cls(prefix, likeliest.peaks[row], partials, temperature)

    @property
    def usable(self) -> bool:
        """Whether there is an id to choose, and no logit is NaN or +inf."""
        return self.prefix.present > 0 and bool(self.prefix.logits[0] < np.inf)

    @cached_property
    def exact(self) -> float:
        """log(sum(e^(logit / temperature))) of all present ids: the bits of `Normaliser.exact`."""
        peaks = scale(self.peaks, self.temperature)
        return folded([of_partials(float(p), part) for p, part in zip(peaks, self.partials, strict=True)])

    @property
    def near(self) -> float:
        """As `exact`, which costs no more here."""
        return self.exact
