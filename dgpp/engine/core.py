"""The core: a model's weights and caches on their devices, and the compiled step.

One step takes a ragged batch and returns, for the wanted rows, the greedy pick and the logits. Row counts are padded
to a few families; `warm_up` runs each once, and nothing compiles afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from dgpp.checkpoint.load import available_memory
from dgpp.checkpoint.mapped import MappedTable
from dgpp.checkpoint.spec import SpecTree, even_ranges
from dgpp.engine.batch import Batch, Segment, build, family_for, unpacked
from dgpp.engine.ngrams import NgramReader
from dgpp.engine.pages import PagePool
from dgpp.engine.ranks import check_world, rank_weights
from dgpp.engine.settings import CoreSettings, SettingsError
from dgpp.engine.slots import SlotKeeper, SlotState
from dgpp.kernels import Kernels
from dgpp.kernels import default as default_kernels
from dgpp.kernels.pick import Likeliest
from dgpp.kernels.pick.reference import picks
from dgpp.kernels.rows import Rows
from dgpp.kernels.stored import stored_as
from dgpp.layers.taps import Taps, match_sites
from dgpp.models import Family
from dgpp.models.state import Room, StateSpecs, per_slot, stored_specs
from dgpp.world import Mesh, Single, World

RANKED = PartitionSpec("rank")
REPLICATED = PartitionSpec()


@dataclass(frozen=True)
class StepResult:
    """What a step returns for its wanted rows, in the order of `Batch.owners`. All of it stays on the device until it
    is read."""

    wanted: int
    padded_picks: jax.Array  # int32 [B]
    logits: jax.Array  # float32 [B, V], rows beyond the wanted ones are zero
    activations: dict[str, np.ndarray] = field(default_factory=dict)  # [rows, ...] of the real rows
    likeliest: Callable[[Mapping[int, np.float32]], Likeliest] | None = None
    """On the host what `dgpp.kernels.pick.likeliest` says of the rows, at the temperatures given by wanted row; the
    others' sums mean nothing. None where the logits are as near."""

    @property
    def picks(self) -> np.ndarray:
        """int32 [wanted]: the greedy choice, ties to the lower id; -1 where a logit is not a number. Waits for the
        step, and raises what went wrong in it."""
        return np.asarray(self.padded_picks)[: self.wanted]


class Core:
    """One model, ready to step. Not safe to use from several threads at once."""

    def __init__(
        self,
        family: Family,
        config: Any,
        weights: Mapping[str, Any],
        settings: CoreSettings | None = None,
        kernels: Kernels | None = None,
        tree: SpecTree | None = None,
        ngrams: MappedTable | None = None,
    ) -> None:
        """`weights` is the tree of host `Weight`s that `load_weights` returns for `tree`, or for the family's own tree.
        `ngrams` is the n-gram table of a model whose tree has none because it stays in its files.

        Raises SettingsError, before anything is allocated, when the settings contradict each other, when the machine
        has too few devices, or when the caches do not fit its memory.
        """
        self.family, self.config = family, config
        self.settings = settings or CoreSettings()
        self.kernels = kernels or default_kernels()
        s = self.settings
        s.check()
        tree, tied = tree or family.abstract(config), family.tied(config)
        check_world(tree, tied, s.world)
        pages = s.pool_tokens // s.page_tokens
        self.position_ceiling = config.max_position_embeddings
        pages_per_slot = min(pages, -(-self.position_ceiling // s.page_tokens))
        self.pool = PagePool(pages, s.page_tokens, s.slots, pages_per_slot)
        self.samples = max(16, s.slots)
        positions = min(self.position_ceiling, pages_per_slot * s.page_tokens)
        constants = family.constants(config, positions, s.world)
        self.state_specs = stored_specs(family.state(config, s.world), self.kernels.stored)
        _check_memory(s, self.state_specs)
        self.world: World
        self._mesh: jax.sharding.Mesh | None = None
        if s.world == 1:
            self.world = Single()
        else:
            self.world = Mesh(s.world)
            self._mesh = _device_mesh(s.world)
        local = rank_weights(tree, tied, weights, s.world)
        self._weights, self._weight_specs = self._place(local)
        self._constants, self._constant_specs = self._place(
            {
                **{k: (v, False) for k, v in constants.replicated.items()},
                **{k: (v, True) for k, v in constants.ranked.items()},
            }
        )
        room = Room(pages, s.page_tokens, s.slots, s.verify_rows)
        self._state = self._zero_state(self.state_specs, room)
        self.ngrams = ngrams
        self._reader = _ngram_reader(family, config, ngrams, s.world)
        back = 0 if self._reader is None else self._reader.back
        self._keeper = SlotKeeper(per_slot(self.state_specs), s.slots, s.verify_rows, back)
        self._picks, _ = self._place((np.zeros(self.samples, np.int32), False))
        self._step = self._compile(frozenset())
        self._likeliest = self._compile_likeliest()
        self._captured: dict[frozenset[str], Any] = {}

    @property
    def takes_picks(self) -> bool:
        """Whether a segment may hold `picked` rows. Not where the host has to know every token, to read its n-grams."""
        return self._reader is None

    # --- stepping -----------------------------------------------------------------------------------------------------

    def step(self, segments: Sequence[Segment]) -> StepResult:
        """Begins to run one batch, which writes the rows' state; the result has the wanted rows' picks and logits.

        Raises ValueError, before anything is computed, for a segment that does not follow on what its slot holds.
        """
        batch = self._batch(segments, self.samples)
        self._picks, logits, _ = self._run(self._step, batch)
        self._keeper.advance(segments)
        ask = None if self._likeliest is None else partial(self._ask, logits)
        return StepResult(len(batch.owners), self._picks, logits, likeliest=ask)

    def step_all(self, segments: Sequence[Segment], capture: str | Sequence[str] = ()) -> StepResult:
        """The same step with as many wanted rows as there are rows, and with named activations.

        It is compiled on first use for every row family and set of sites, so a serving engine does not call it.
        Raises KeyError for a pattern that matches no site.
        """
        names = match_sites(capture, self.family.sites(self.config)) if capture else {}
        sites = frozenset(site for site, _ in names.values())
        if sites not in self._captured:
            self._captured[sites] = self._compile(sites)
        rows = sum(len(s.tokens) for s in segments)
        batch = self._batch(segments, family_for(rows, self.settings.row_families))
        picks, logits, seen = self._run(self._captured[sites], batch)
        self._keeper.advance(segments)
        activations = {
            name: np.asarray((seen[site] if place is None else seen[site][place])[: batch.used])
            for name, (site, place) in names.items()
        }
        return StepResult(len(batch.owners), picks, logits, activations)

    def warm_up(self) -> None:
        """Compiles and runs once whatever a step may need: every row family, on padding alone."""
        for family in self.settings.row_families:
            batch = self._with_ngrams(build((), self.pool.table, family, self.samples), ())
            self._picks, logits, _ = self._run(self._step, batch)
            self._picks.block_until_ready()
            if self._likeliest is not None:
                self._ask(logits, {})

    def lowered(self, rows: int) -> Any:
        """The step for a row family before XLA compiles it, as JAX has it; Triton kernels are compiled on the way, and
        those of other families at once when threads call this beside each other."""
        batch = self._with_ngrams(build((), self.pool.table, rows, self.samples), ())
        integers, shapes = batch.packed()
        return self._step.lower(
            self._weights, self._constants, self._state, integers, batch.rows.ngrams, self._picks, shapes
        )

    def keep(self, slot: int) -> SlotState:
        """A copy of what belongs to a slot beside its pages, to be put back with `restore`."""
        return self._keeper.keep(slot, self._state, self._mesh is not None)

    def restore(self, slot: int, kept: SlotState) -> None:
        """Takes a slot back to where `kept` was made; of its pages, those up to there must still be as they were."""
        self._state = self._keeper.restore(slot, kept, self._state, self._mesh is not None)

    def _batch(self, segments: Sequence[Segment], samples: int) -> Batch:
        rows = sum(len(s.tokens) for s in segments)
        family = family_for(rows, self.settings.row_families)
        batch = build(segments, self.pool.table, family, samples, self._keeper.replays(segments))
        return self._with_ngrams(batch, segments)

    def _with_ngrams(self, batch: Batch, segments: Sequence[Segment]) -> Batch:
        """`batch` with the rows of a table that stays in its files, if there is one."""
        if self._reader is None:
            return batch
        if batch.rows.token[: batch.used].min(initial=0) < 0:
            raise ValueError("a core that reads its n-grams from files needs every token, and cannot take picks")
        texts = [(self._keeper.before(segment), segment.tokens) for segment in segments]
        found = self._reader.rows(texts, len(batch.rows.token)).astype(self.kernels.stored, copy=False)
        return replace(batch, rows=replace(batch.rows, ngrams=found))

    def _run(self, step: Any, batch: Batch) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
        integers, shapes = batch.packed()
        picks, logits, self._state, seen = step(
            self._weights, self._constants, self._state, integers, batch.rows.ngrams, self._picks, shapes
        )
        return picks, logits, seen

    def _ask(self, logits: jax.Array, temperatures: Mapping[int, np.float32]) -> Likeliest:
        of_rows = np.ones(len(logits), np.float32)
        for row, temperature in temperatures.items():
            of_rows[row] = temperature
        assert self._likeliest is not None
        return Likeliest(*(np.asarray(part) for part in jax.device_get(self._likeliest(logits, of_rows))))

    # --- construction -------------------------------------------------------------------------------------------------

    def _compile(self, sites: frozenset[str]) -> Any:
        """The jitted step that also returns the activations of `sites`; the state is donated."""
        family, config, world, kernels = self.family, self.config, self.world, self.kernels

        def step(weights: Any, constants: Any, state: Any, rows: Any, sample_rows: Any, sample_used: Any) -> Any:
            taps = Taps(sites)
            with stored_as(kernels.stored):
                hidden, state = family.forward(config, weights, constants, rows, state, world, kernels, taps)
                logits = family.logits(config, weights, hidden[sample_rows], sample_used, world, kernels)
            return picks(logits), logits, state, taps.seen

        def packed(inner: Any) -> Any:
            def run(weights: Any, constants: Any, state: Any, *batch: Any) -> Any:
                return inner(weights, constants, state, *unpacked(*batch))

            return jax.jit(run, donate_argnums=2, static_argnums=6)

        if self._mesh is None:
            return packed(step)

        # The rows of an n-gram table are the only ones of a batch that differ between ranks.
        row_specs = Rows(**{part.name: REPLICATED for part in fields(Rows)})
        row_specs = replace(row_specs, ngrams=None if self._reader is None else RANKED)

        def ranked(weights: Any, constants: Any, state: Any, rows: Rows, *rest: Any) -> Any:
            rows = rows if rows.ngrams is None else replace(rows, ngrams=rows.ngrams[0])
            own = partial(jax.tree.map, lambda spec, x: x[0] if spec == RANKED else x)
            weights, constants = own(self._weight_specs, weights), own(self._constant_specs, constants)
            state = {name: x[0] for name, x in state.items()}
            picks, logits, state, seen = step(weights, constants, state, rows, *rest)
            return (picks, logits), {name: x[None] for name, x in state.items()}, jax.tree.map(_first, seen)

        def _first(x: jax.Array) -> jax.Array:
            return x[None]

        mapped = jax.shard_map(
            ranked,
            mesh=self._mesh,
            in_specs=(self._weight_specs, self._constant_specs, RANKED, row_specs, REPLICATED, REPLICATED),
            out_specs=(REPLICATED, RANKED, RANKED),
            check_vma=False,
        )

        def flat(*args: Any) -> Any:
            (picks, logits), state, seen = mapped(*args)
            # Every rank captures its own part; a notebook looks at rank 0's.
            return picks, logits, state, {site: x[0] for site, x in seen.items()}

        return packed(flat)

    def _compile_likeliest(self) -> Any:
        """The jitted `likeliest`, where the kernels have one and one device has the logits."""
        if self.kernels.likeliest is None or self._mesh is not None:
            return None
        return jax.jit(partial(self.kernels.likeliest, slices=even_ranges(self.config.vocab_size)))

    def _place(self, arrays: Any) -> tuple[Any, Any]:
        """(device arrays, partition specs) of a tree of (host array, is it ranked) pairs."""
        is_pair = lambda x: isinstance(x, tuple)  # noqa: E731
        specs = jax.tree.map(lambda pair: RANKED if pair[1] else REPLICATED, arrays, is_leaf=is_pair)
        if self._mesh is None:
            # A world of one holds its only rank's part without the rank axis.
            place = lambda pair: jax.device_put(pair[0][0] if pair[1] else pair[0])  # noqa: E731
        else:
            mesh = self._mesh
            place = lambda pair: jax.device_put(pair[0], NamedSharding(mesh, RANKED if pair[1] else REPLICATED))  # noqa: E731
        return jax.tree.map(place, arrays, is_leaf=is_pair), specs

    def _zero_state(self, specs: StateSpecs, room: Room) -> dict[str, jax.Array]:
        if self._mesh is None:
            return {name: jnp.zeros(spec.allocation(room), spec.dtype) for name, spec in specs.items()}
        sharding = NamedSharding(self._mesh, RANKED)
        return {
            name: jnp.zeros((self.settings.world, *spec.allocation(room)), spec.dtype, device=sharding)
            for name, spec in specs.items()
        }


def _ngram_reader(family: Family, config: Any, ngrams: MappedTable | None, world: int) -> NgramReader | None:
    """The reader of a table that stays in its files."""
    source = family.supports.ngram_table
    table = source.table(config) if source else None
    return None if ngrams is None or table is None else NgramReader(table, ngrams, world)


def _check_memory(settings: CoreSettings, specs: StateSpecs) -> None:
    available = available_memory()
    slots = settings.slots * settings.world * sum(spec.bytes_per_slot(settings.verify_rows) for spec in specs.values())
    per_token = settings.world * sum(spec.bytes_per_token for spec in specs.values())
    needed = slots + settings.pool_tokens * per_token
    if available is not None and needed > available:
        fitting = max(0, available - slots) // max(1, per_token)
        raise SettingsError(
            f"a pool of {settings.pool_tokens} tokens and {settings.slots} slots need {needed / 2**30:.2f} GiB and "
            f"{available / 2**30:.2f} GiB are available; at most {fitting} tokens would fit"
        )


def _device_mesh(world: int) -> jax.sharding.Mesh:
    devices = jax.devices()
    if len(devices) < world:
        raise SettingsError(
            f"a mesh world of {world} needs {world} devices, this process has {len(devices)}; on a CPU set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={world} before jax is imported"
        )
    return jax.make_mesh((world,), ("rank",), axis_types=(jax.sharding.AxisType.Auto,), devices=devices[:world])
