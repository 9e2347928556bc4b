"""The format of every module of a checkpoint: what the tensors are, with the config as the judge where they leave a
choice, and a note where the two disagree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.quantization.dialects import read_scheme
from dgpp.checkpoint.quantization.modules import Module, Signature, modules_of, whole_of
from dgpp.checkpoint.quantization.observe import Possible, Undecided, possible_tags
from dgpp.checkpoint.quantization.scheme import Scheme
from dgpp.checkpoint.quantization.tags import UNQUANTIZED, Tags, agrees
from dgpp.checkpoint.reader import Checkpoint
from dgpp.formats import format_named
from dgpp.formats.integers import Integers

BESIDE_WEIGHTS: Tags = (*UNQUANTIZED, Integers().name)
"""What tensors can be that no config speaks about."""

EXAMPLE = (1024, 1024)
"""A shape that every format can hold."""


@dataclass(frozen=True)
class FormatTable:
    """The formats of a checkpoint's modules.

    `method` is the config's quant_method or "none"; `notes` say where config and tensors disagree and what was made of
    it; `undecided` are modules whose tensors are in no known form, with the reason.
    """

    where: str
    method: str
    formats: Mapping[str, str]
    undecided: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def format_of(self, module: str) -> str | None:
        """The tag of a module's format; None for a name that the checkpoint does not have.

        Raises CheckpointError with the reason when the module's tensors are in no known form.
        """
        if module in self.undecided:
            raise CheckpointError(f"{self.where}: module {module}: {self.undecided[module]}")
        return self.formats.get(module)


def resolve_formats(checkpoint: Checkpoint) -> FormatTable:
    """The table of a checkpoint. Reads JSON files and headers, and a few small tensors where those are not enough.

    Raises CheckpointError, before anything is allocated, for a quantization method or setting that is not supported,
    by its name in the config.
    """
    scheme = read_scheme(checkpoint)
    formats: dict[str, str] = {}
    undecided: dict[str, str] = {}
    disagreements: dict[tuple[Tags, str], list[str]] = {}
    known: dict[Signature, Possible | Undecided] = {}
    for name, module in modules_of(checkpoint.tensors).items():
        signature = module.signature
        if signature not in known:
            known[signature] = _observed(module, checkpoint)
        seen = known[signature]
        if isinstance(seen, Undecided):
            undecided[name] = str(seen)
            continue
        declared = scheme.declared(whole_of(name)) if _is_matrix(module) else BESIDE_WEIGHTS
        tag, agreed = _choice(seen, declared)
        if tag is None and seen.partial:
            undecided[name] = _lacking(module, seen, declared)
        elif tag is None:
            undecided[name] = f"its tensors could be {' or '.join(seen.tags)}, and {scheme.where} does not say which"
        else:
            formats[name] = tag
            if not agreed:
                disagreements.setdefault((declared, tag), []).append(name)
    notes = [_note(scheme, *key, modules) for key, modules in disagreements.items()]
    notes += _cache_notes(scheme, checkpoint.tensors)
    return FormatTable(str(checkpoint.directory), scheme.method, formats, undecided, tuple(notes))


def _choice(seen: Possible, declared: Tags) -> tuple[str | None, bool]:
    """(the tag, whether the config agrees); None when the tensors leave a choice that the config does not make."""
    agreeing = [tag for tag in seen.tags if agrees(tag, declared)]
    if len(agreeing) == 1 or (agreeing and seen.same):
        return agreeing[0], True
    if len(seen.tags) == 1 or seen.same:
        return seen.tags[0], False
    return None, False


def _lacking(module: Module, seen: Possible, declared: Tags) -> str:
    """What a module would need to be complete, in the formats that the config gives it, or that it could be in."""
    named = [tag for tag in declared if "*" not in tag and tag not in UNQUANTIZED]
    wanted = []
    for tag in named or seen.tags:
        suffixes = [a.suffix for a in format_named(tag).arrays(EXAMPLE).values() if not a.optional]
        if missing := [suffix for suffix in suffixes if suffix not in module.tensors]:
            wanted.append(f"as {tag} it lacks {' and '.join(map(repr, missing))}")
    return f"it has only {' and '.join(map(repr, module.tensors))}; {', '.join(wanted)}"


def _observed(module: Module, checkpoint: Checkpoint) -> Possible | Undecided:
    try:
        return possible_tags(module, checkpoint)
    except Undecided as reason:
        return reason


def _is_matrix(module: Module) -> bool:
    """Whether the module is of a kind that configs speak about; norms and parameters without a suffix are not."""
    payload = module.payloads[0]
    return payload != "" and len(module.shape(payload)) > 1


def _note(scheme: Scheme, declared: Tags, found: str, modules: list[str]) -> str:
    many = f"{len(modules)} modules, e.g. {modules[0]}, are" if len(modules) > 1 else f"{modules[0]} is"
    return f"{scheme.where} says {_text(declared)}, but {many} stored as {found}; taken as stored"


def _text(declared: Tags) -> str:
    return " or ".join(
        "unquantized" if tag == UNQUANTIZED[0] else tag for tag in declared if tag not in UNQUANTIZED[1:]
    )


def _cache_notes(scheme: Scheme, tensors: Iterable[str]) -> list[str]:
    """What becomes of scales for a quantised K/V cache, declared or there."""
    there = sum(name.rpartition(".")[2] in ("k_scale", "v_scale") for name in tensors)
    if there:
        return [f"K and V are kept in bf16: {there} k_scale and v_scale tensors are not used"]
    if scheme.kv_cache:
        return [
            f"K and V are kept in bf16: {scheme.where} declares scales for a quantised cache ({scheme.kv_cache}), but "
            f"the checkpoint has none"
        ]
    return []
