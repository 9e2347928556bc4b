"""The matrices of published models that the GPU benchmarks time, and how a release stores them.

Values: spec/models_qwen.md, models_glm.md and models_deepseek_mimo_flint.md, transcribed from the releases' files.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Matrix:
    """A weight [N, K] of `model` as a release stores it; `leaves` of K are summed apart if it is row-parallel."""

    model: str
    name: str
    n: int
    k: int
    formats: tuple[str, ...]
    leaves: int = 1

    @property
    def ranges(self) -> tuple[tuple[int, int], ...] | None:
        """Equal leaves of K, or None."""
        each = self.k // self.leaves
        return tuple((i * each, (i + 1) * each) for i in range(self.leaves)) if self.leaves > 1 else None


_SERVED = ("bf16", "fp8_block128_bf16", "nvfp4_divisor")
GATE = Matrix("Qwen3.8-27B", "gate_proj, up_proj", 17408, 5120, _SERVED)
HEAD = Matrix("Qwen3.8-27B", "lm_head", 248320, 5120, ("fp8_channel",))
MATRICES = (
    GATE,
    HEAD,
    Matrix("Qwen3.8-27B", "down_proj", 5120, 17408, _SERVED, 4),
    Matrix("Qwen3.8-27B", "in_proj_qkv", 10240, 5120, ("fp8_block128_bf16", "fp8_channel")),
    Matrix("Qwen3.8-27B", "k_proj, v_proj", 1024, 5120, ("fp8_block128_bf16",)),
    Matrix("Qwen3.8-27B", "o_proj, out_proj", 5120, 6144, ("fp8_block128_bf16",), 4),
    Matrix("Qwen3.5-122B-A10B", "q_proj", 16384, 3072, ("bf16",)),
    Matrix("Qwen3.5-122B-A10B", "out_proj", 3072, 8192, ("bf16",), 4),
    Matrix("Qwen3.8-Flash-Next", "q_proj", 12288, 2560, ("bf16",)),
    Matrix("Qwen3.8-Flash-Next", "out_proj", 2560, 6144, ("bf16",), 4),
    Matrix("GLM-5.3-Flash", "gate_proj, up_proj", 12288, 4096, ("fp8_block128",)),
    Matrix("GLM-5.3-Flash", "o_proj", 4096, 16384, ("fp8_block128",), 4),
    Matrix("DeepSeek-V4-Flash", "wq_b", 32768, 1024, ("fp8_block128_e8m0",)),
    Matrix("DeepSeek-V4-Flash", "w1, w3 of an expert", 2048, 4096, ("mxfp4_deepseek",)),
)
FORMATS = (
    "bf16", "f16", "fp8_block128", "fp8_block128_bf16", "fp8_block128_e8m0", "fp8_block32_e8m0", "fp8_channel",
    "nvfp4", "nvfp4_divisor", "mxfp4", "mxfp8", "int4_g64", "int8_g64", "int4_g128_f16", "int8_g128_f16",
    "bf12", "nf4i8", "mixed346_3", "mixed346_4", "mixed346_6", "exl3_3.5_mul1", "exl3_4_mul1", "exl3_4_3inst",
    "exl3_6_mul1", "int8_planes_g128", "gptq_int4_g128_asym_v1",
)  # fmt: skip
"""Those that are timed on GATE and on HEAD, whoever ships them."""
