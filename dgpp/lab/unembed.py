"""From the residual stream to logits: a model's final norm and head, outside the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.kernels.norm.reference import rms_norm
from dgpp.world import Single

if TYPE_CHECKING:
    from dgpp.lab.model import Model


class Unembed:
    """Final norm and head of a model, as a function of the residual stream. For a world of 1."""

    def __init__(self, model: Model) -> None:
        """Raises ValueError for a model that is spread over a world."""
        if model.core.settings.world != 1:
            raise ValueError("the logit lens needs a world of 1; load the model once more with world=1")
        family, config, kernels = model.family, model.config, model.core.kernels

        def step(weights: Any, h: jax.Array, zero: jax.Array) -> jax.Array:
            hidden = rms_norm(h, weights["final_norm"].arrays["values"], config.rms_norm_eps, zero)
            logits: jax.Array = family.logits(config, weights, hidden, jnp.int32(h.shape[0]), Single(), kernels)
            return logits

        self._weights = model.placed
        self._step = jax.jit(step)

    def __call__(self, h: Any) -> np.ndarray:
        """The logits for `h` bfloat16 [T, D]: float32 [T, V]."""
        return np.asarray(self._step(self._weights, jnp.asarray(h), np.int32(0)))
