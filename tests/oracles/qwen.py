"""The equations of the Qwen families in float64 NumPy, straight from the checkpoint's tensors: the judge of all others.

`qwen3_5` (dense), `qwen3_5_moe` and `qwen4_exp`, and the draft layer of each. No rounding but that of float64, no
cache, no batch, no leaves, nothing shared with the engine; `tests/oracles/reading.py` makes a `Read` for any release.
Sources: "Gated Delta Networks" (arXiv:2412.06464), and the classes of transformers 5.24 that are named below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Read = Callable[[str], np.ndarray]
"""The values of a module by its name without ".weight". Raises KeyError for one that is not there."""

Array = np.ndarray
MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
ROOT = "model.language_model."


@dataclass(frozen=True)
class Text:
    """What the layers need: the text config, the weights, the tokens and their positions in three axes [T, 3].

    `chosen` replaces discrete choices, which rounding can tip, by those of the run that is judged: experts int [T, k]
    under "layers.{l}.moe.experts" and blocks under "layers.{l}.index.blocks"; "mtp." for "layers.{l}." in a draft.
    """

    c: Mapping[str, Any]
    read: Read
    ids: Array
    rope: Array
    chosen: Mapping[str, Array] = field(default_factory=dict)

    def w(self, name: str) -> Array:
        return self.read(name).astype(np.float64)

    @property
    def eps(self) -> float:
        return float(self.c["rms_norm_eps"])


def text(raw: Mapping[str, Any], read: Read, ids: Sequence[int], rope: Array | None = None, **more: Any) -> Text:
    tokens = np.array(ids)
    positions = np.repeat(np.arange(len(tokens))[:, None], 3, axis=1) if rope is None else np.asarray(rope)
    return Text(raw.get("text_config", raw), read, tokens, positions, **more)


def logits(raw: Mapping[str, Any], read: Read, ids: Sequence[int], **more: Any) -> Array:
    """Logits after every token of `ids`, float64 [T, V]. `raw` is config.json; `more` as in `text`."""
    t = text(raw, read, ids, **more)
    return hidden(t)[1] @ t.w("lm_head").T


def draft_logits(raw: Mapping[str, Any], read: Read, ids: Sequence[int], **more: Any) -> Array:
    """What the draft layer says about the token after next, float64 [T - 1, V]: row t knows h_t and token t + 1."""
    t = text(raw, read, ids, **more)
    stream, final = hidden(t)
    pairs = Text(t.c, read, t.ids[:-1], t.rope[:-1], t.chosen)
    embedded = norm(t.w(ROOT + "embed_tokens")[t.ids[1:]], t.w("mtp.pre_fc_norm_embedding"), t.eps)
    if "hc_count" in t.c:
        # `qwen4_exp`: one norm over all branches of the raw stream, one projection for every branch.
        n = norm(stream[:-1], t.w("mtp.pre_fc_norm_hidden"), t.eps).reshape(len(pairs.ids), t.c["hc_count"], -1)
        r = (embedded @ t.w("mtp.fc_embedding").T)[:, None] + n @ t.w("mtp.fc_hidden").T
        r = branch_layer(pairs, r.reshape(len(pairs.ids), -1), "mtp.layers.0.", "mtp.", sparse=True)
        h, _ = mix(pairs, r, "mtp.hyper_connection_mixer.")
    else:
        n = norm(final[:-1], t.w("mtp.pre_fc_norm_hidden"), t.eps)
        x = np.concatenate([embedded, n], axis=-1) @ t.w("mtp.fc").T
        h = norm(plain_layer(pairs, x, "mtp.layers.0.", "mtp.", linear=False), t.w("mtp.norm"), t.eps)
    return h @ t.w("lm_head").T


def hidden(t: Text) -> tuple[Array, Array]:
    """(the residual stream after the last layer, what the head reads), [T, ...]."""
    x = t.w(ROOT + "embed_tokens")[t.ids]
    kinds = [kind == "linear_attention" for kind in t.c["layer_types"]]
    if "hc_count" not in t.c:
        for layer, linear in enumerate(kinds):
            x = plain_layer(t, x, f"{ROOT}layers.{layer}.", f"layers.{layer}.", linear)
        return x, norm(x, t.w(ROOT + "norm"), t.eps)
    x = np.tile(x, (1, t.c["hc_count"]))
    for layer, linear in enumerate(kinds):
        at = f"{ROOT}layers.{layer}."
        if layer + 1 in t.c["ple_layer_ids"]:
            x = x + ple(t, x, at + "ple.", t.c["ple_layer_ids"].index(layer + 1))
        x = branch_layer(t, x, at, f"layers.{layer}.", sparse=not linear)
    return x, mix(t, x, ROOT + "hyper_connection_mixer.")[0]


# --- layers ---------------------------------------------------------------------------------------------------------


def plain_layer(t: Text, x: Array, at: str, site: str, linear: bool) -> Array:
    """`Qwen3_5DecoderLayer`, dense or with experts."""
    y = norm(x, t.w(at + "input_layernorm"), t.eps)
    x = x + (delta_net(t, y, at + "linear_attn.", "swish") if linear else attention(t, y, at + "self_attn."))
    y = norm(x, t.w(at + "post_attention_layernorm"), t.eps)
    if "num_experts" in t.c:
        return x + moe(t, y, at + "mlp.", site)
    return x + swiglu(y, *(t.w(f"{at}mlp.{name}_proj") for name in ("gate", "up", "down")))


def branch_layer(t: Text, branches: Array, at: str, site: str, sparse: bool) -> Array:
    """`Qwen4ExpTextDecoderLayer` without its per-layer embedding."""
    x, s = mix(t, branches, at + "attn_hyper_connection.")
    if sparse:
        y = attention(t, x, at + "self_attn.", visible(t, x, at + "self_attn.indexer.", site))
    else:
        y = delta_net(t, x, at + "linear_attn.", "sigmoid")
    branches = feed(branches, s, y)
    x, s = mix(t, branches, at + "mlp_hyper_connection.")
    return feed(branches, s, moe(t, x, at + "mlp.", site))


def delta_net(t: Text, x: Array, at: str, default_gate: str) -> Array:
    """`Qwen3_5GatedDeltaNet`, step by step."""
    c, length = t.c, len(x)
    keys, values = c["linear_num_key_heads"], c["linear_num_value_heads"]
    dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
    mixed = silu(convolved(x @ t.w(at + "in_proj_qkv").T, t.w(at + "conv1d")))
    q, k, v = np.split(mixed, [keys * dk, 2 * keys * dk], axis=-1)
    q, k = (np.repeat(unit(y.reshape(length, keys, dk)), values // keys, axis=1) for y in (q, k))
    v = v.reshape(length, values, dv)
    beta = sigmoid(x @ t.w(at + "in_proj_b").T)
    decay = np.exp(-np.exp(t.w(at + "A_log")) * np.logaddexp(0, x @ t.w(at + "in_proj_a").T + t.w(at + "dt_bias")))
    state, o = np.zeros((values, dk, dv)), np.empty_like(v)
    for i in range(length):
        state = state * decay[i][:, None, None]
        missing = (v[i] - np.einsum("hkv,hk->hv", state, k[i])) * beta[i][:, None]
        state = state + k[i][:, :, None] * missing[:, None]
        o[i] = np.einsum("hkv,hk->hv", state, q[i]) / np.sqrt(dk)
    z = (x @ t.w(at + "in_proj_z").T).reshape(o.shape)
    gate = silu(z) if c.get("output_gate_type", default_gate) == "swish" else sigmoid(z)
    y = o / np.sqrt((o * o).mean(-1, keepdims=True) + t.eps) * t.w(at + "norm") * gate
    return y.reshape(length, -1) @ t.w(at + "out_proj").T


def attention(t: Text, x: Array, at: str, seen: Array | None = None) -> Array:
    """`Qwen3_5Attention`: causal, or over the tokens that `seen` [T, T] allows."""
    length, dim = len(x), t.c["head_dim"]
    q, gate = np.split((x @ t.w(at + "q_proj").T).reshape(length, -1, 2 * dim), 2, axis=-1)
    k, v = ((x @ t.w(at + name).T).reshape(length, -1, dim) for name in ("k_proj", "v_proj"))
    q, k = (turned(t, norm(y, t.w(at + name), t.eps), t.rope) for y, name in ((q, "q_norm"), (k, "k_norm")))
    k, v = (np.repeat(y, q.shape[1] // y.shape[1], axis=1) for y in (k, v))
    score = np.einsum("thd,shd->hts", q, k) / np.sqrt(dim)
    score = np.where(np.tril(np.ones((length, length), bool)) if seen is None else seen, score, -np.inf)
    weight = np.exp(score - score.max(-1, keepdims=True))
    mixed = np.einsum("hts,shd->thd", weight / weight.sum(-1, keepdims=True), v) * sigmoid(gate)
    return mixed.reshape(length, -1) @ t.w(at + "o_proj").T


def visible(t: Text, x: Array, at: str, site: str) -> Array:
    """`Qwen4ExpTextQSAIndexer`: bool [T, T], the tokens that each may attend to."""
    c, length = t.c, len(x)
    heads, dim, block = c["indexer_n_heads"], c["indexer_head_dim"], c["indexer_compress_ratio"]
    y = x @ t.w(at + "index_qk_proj").T
    q, raw = y[:, : heads * dim].reshape(length, heads, dim), y[:, heads * dim :]
    q = turned(t, norm(q, t.w(at + "q_layernorm"), t.eps), t.rope)
    count = length // block
    mean = raw[: count * block].reshape(count, block, dim).mean(1)
    keys = turned(t, norm(mean, t.w(at + "k_layernorm"), t.eps)[:, None], t.rope[: count * block : block])[:, 0]
    seen = np.zeros((length, length), bool)
    for i in range(length):
        complete = (i + 1) // block
        score = np.maximum(q[i] @ keys[:complete].T, 0).sum(0) / np.sqrt(dim)
        best = sorted(range(complete), key=lambda b, score=score: (-score[b], b))[: c["indexer_budget"] // block]
        for b in t.chosen[f"{site}index.blocks"][i] if f"{site}index.blocks" in t.chosen else best:
            if b < complete:
                seen[i, b * block : (b + 1) * block] = True
        seen[i, complete * block : i + 1] = True
    return seen


def moe(t: Text, x: Array, at: str, site: str) -> Array:
    """`Qwen3_5MoeSparseMoeBlock`."""
    scores = x @ t.w(at + "gate").T
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    best = np.argsort(-p, axis=-1, kind="stable")[:, : t.c["num_experts_per_tok"]]
    chosen = t.chosen.get(f"{site}moe.experts", best)
    shared = swiglu(x, *(t.w(f"{at}shared_expert.{name}_proj") for name in ("gate", "up", "down")))
    out = sigmoid(x @ t.w(at + "shared_expert_gate").T) * shared
    for expert in np.unique(chosen):
        rows = np.nonzero((chosen == expert).any(-1))[0]
        share = p[rows, expert] / np.take_along_axis(p[rows], chosen[rows], -1).sum(-1)
        out[rows] += share[:, None] * swiglu(x[rows], *expert_matrices(t, at + "experts.", int(expert)))
    return out


def expert_matrices(t: Text, at: str, expert: int) -> tuple[Array, Array, Array]:
    """gate, up and down of one expert, stored by itself or fused with all others."""
    try:
        gate, up, down = (t.w(f"{at}{expert}.{name}_proj") for name in ("gate", "up", "down"))
    except KeyError:
        gate, up = np.split(t.w(at + "gate_up_proj")[expert], 2)
        down = t.w(at + "down_proj")[expert]
    return gate, up, down


def mix(t: Text, branches: Array, at: str) -> tuple[Array, Array]:
    """`Qwen4ExpTextGatedResidual`: (what the block reads, how strongly each branch takes what it returns)."""
    count = t.c["hc_count"]
    normed = grouped_norm(branches, t.w(at + "hc_norm"), count, t.eps)
    low = silu(normed @ t.w(at + "input_mix_weight_down").T / count)
    gate = sigmoid(low @ t.w(at + "input_mix_weight_up").T)
    x = (gate * normed).reshape(len(branches), count, -1).mean(1)
    try:
        return x, 2 * sigmoid(normed @ t.w(at + "block_inject_weight").T / count)
    except KeyError:
        return x, np.zeros((len(branches), count))


def feed(branches: Array, s: Array, y: Array) -> Array:
    return branches + (s[:, :, None] * y[:, None]).reshape(branches.shape)


def ple(t: Text, branches: Array, at: str, index: int) -> Array:
    """`Qwen4ExpTextPLELayer`."""
    c, length = t.c, len(branches)
    count, wide = c["hc_count"], branches.shape[1]
    table = t.w(at + "ple_embedding.ngram_embedding")
    e = table[ngram_rows(c, t.ids, index)].reshape(length, -1)
    k = grouped_norm(e @ t.w(at + "key_proj").T, t.w(at + "norm_key"), count, t.eps).reshape(length, count, -1)
    q = grouped_norm(branches, t.w(at + "norm_query"), count, t.eps).reshape(length, count, -1)
    g = (k * q).sum(-1) / np.sqrt(wide // count)
    g = np.sign(g) * np.sqrt(np.maximum(np.abs(g), 1e-6))
    u = (sigmoid(g)[..., None] * (e @ t.w(at + "value_proj").T)[:, None]).reshape(length, wide)
    normed = grouped_norm(u, t.w(at + "norm_conv"), count, t.eps)
    return u + silu(convolved(normed, t.w(at + "conv1d"), dilation=c["ngram_size"]))


def ngram_rows(c: Mapping[str, Any], ids: Array, index: int) -> Array:
    """`Qwen4ExpTextNGramEmbedding` in Python's integers: the table's rows of every token, [T, heads]."""
    size, per = c["ngram_size"], c["heads_per_ngram"]
    heads = (size - 1) * per
    eos = c["eos_token_id"][0] if isinstance(c["eos_token_id"], list) else c["eos_token_id"]
    half = max(1, (2**63 - 1) // c["vocab_size"] // 2)
    seed = c.get("seed", 1234) + 10007 * index
    multipliers = [2 * (_splitmix(seed + GAMMA * (i + 1)) % half) + 1 for i in range(size)]
    primes: list[int] = []
    candidate = c["ngram_vocab_size_base"]
    while len(primes) < (index + 1) * heads:
        if all(candidate % d for d in range(2, int(candidate**0.5) + 1)):
            primes.append(candidate)
        candidate += 1
    sizes = primes[-heads:]
    rows = np.empty((len(ids), heads), np.int64)
    for i in range(len(ids)):
        y = [int(ids[i])]
        for s in range(1, size):
            inside = i >= s and eos not in ids[i - s : i]
            y.append(int(ids[i - s]) if inside else eos)
        for head in range(heads):
            mixed = 0
            for token, multiplier in zip(y[: 2 + head // per], multipliers, strict=False):
                mixed ^= token * multiplier
            rows[i, head] = mixed % sizes[head] + sum(sizes[:head])
    return rows


# --- parts ----------------------------------------------------------------------------------------------------------


def norm(x: Array, weight: Array, eps: float) -> Array:
    """`Qwen3_5RMSNorm` over the last axis: weights lie around 0."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (1 + weight)


def grouped_norm(x: Array, weight: Array, groups: int, eps: float) -> Array:
    """`norm` of each of `groups` parts by its own mean square."""
    parts = x.reshape(*x.shape[:-1], groups, -1)
    return norm(parts, weight.reshape(groups, -1), eps).reshape(x.shape)


def unit(x: Array) -> Array:
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def swiglu(x: Array, gate: Array, up: Array, down: Array) -> Array:
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def convolved(x: Array, weight: Array, dilation: int = 1) -> Array:
    """Causal depthwise convolution: the last tap of weight [C, 1, K] meets the row itself."""
    width, length = weight.shape[-1], len(x)
    padded = np.concatenate([np.zeros(((width - 1) * dilation, x.shape[1])), x])
    return sum(padded[i * dilation : i * dilation + length] * weight[:, 0, i] for i in range(width))


def turned(t: Text, x: Array, positions: Array) -> Array:
    """The first part of every head of x [T, H, Dh] turned by positions [T, 3], whose axes the frequencies take in
    turns."""
    rope = t.c["rope_parameters"]
    half = int(t.c["head_dim"] * rope.get("partial_rotary_factor", 1)) // 2
    axis = np.zeros(half, int)
    for i, count in enumerate(rope["mrope_section"][1:], 1):
        axis[i : 3 * count : 3] = i
    angle = (positions[:, axis] / rope["rope_theta"] ** (np.arange(half) / half))[:, None]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def _splitmix(state: int) -> int:
    z = (state + GAMMA) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)
