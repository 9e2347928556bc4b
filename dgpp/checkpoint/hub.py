"""Where a model lies: a directory, a hub id in the local Hugging Face cache, or the embedded model.

The cache is the one every Hugging Face tool shares: `$HF_HUB_CACHE`, else `$HF_HOME/hub`, else
`~/.cache/huggingface/hub`. A model ORG/NAME lives in `models--ORG--NAME`; `refs/<branch>` holds the commit whose files
are in `snapshots/<commit>`. `resolve` only reads that; `pull` is the one function that uses the network.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from dgpp.checkpoint.embedded import embedded_path
from dgpp.checkpoint.errors import CheckpointError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
REVISION = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)

WANTED = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "*.tiktoken")
"""Files of a model repository that a run can need: config, tokenizer, templates and weights."""

UNWANTED = ("original/*", "onnx/*", "metal/*", "consolidated*.safetensors")
"""Second copies of the weights in other layouts, which some repositories carry."""


def hub_cache() -> Path:
    """The directory of the local hub cache; it need not exist."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    return Path("~/.cache/huggingface/hub").expanduser()


def resolve(model: str | None = None, revision: str | None = None) -> Path:
    """The directory of a model; `None` is the embedded one.

    `model` is a directory or a hub id ORG/NAME; `revision` picks a branch, tag or full commit of a hub id. Without it
    the snapshot of `refs/main` is meant, or the only one there is. Reads the local cache only. Raises CheckpointError
    saying what to do when there is no such directory, no snapshot, or more than one to choose from.
    """
    if model is None:
        return embedded_path()
    directory = Path(model).expanduser()
    if directory.is_dir():
        if revision is not None:
            raise CheckpointError(f"{model} is a directory; a revision ({revision}) can only be chosen for a hub id")
        return directory
    if not HUB_ID.fullmatch(model):
        what = "is not a directory" if directory.exists() else "does not exist"
        raise CheckpointError(f"{model} {what}; give a model's directory or a hub id ORG/NAME")
    repository = hub_cache() / ("models--" + model.replace("/", "--"))
    if not repository.is_dir():
        raise CheckpointError(
            f"{model} is neither a directory nor in the hub cache {hub_cache()}; download it with `dgpp pull {model}`"
        )
    return _snapshot(model, repository, revision)


def _snapshot(model: str, repository: Path, revision: str | None) -> Path:
    if revision is not None and (".." in revision or not REVISION.fullmatch(revision)):
        raise CheckpointError(f"revision {revision!r} of {model} is not a branch, tag or commit")
    reference = repository / "refs" / (revision or "main")
    snapshots = repository / "snapshots"
    if reference.is_file():
        commit = reference.read_text().strip()
        if not commit or not (snapshots / commit).is_dir():
            raise CheckpointError(
                f"{model}: {reference} names the snapshot {commit!r}, which is not in the cache; "
                f"download it with {_pull_command(model, revision)}"
            )
        return snapshots / commit
    if revision is not None:
        if (snapshots / revision).is_dir():
            return snapshots / revision
        raise CheckpointError(
            f"revision {revision} of {model} is not in the cache ({_candidates(snapshots)}); "
            f"download it with {_pull_command(model, revision)}"
        )
    found = sorted(path for path in snapshots.glob("*") if path.is_dir())
    if len(found) == 1:
        return found[0]
    if not found:
        raise CheckpointError(f"{model} has no snapshot in {snapshots}; download it with {_pull_command(model, None)}")
    raise CheckpointError(
        f"{model} has no refs/main in the cache and {len(found)} snapshots to choose from ({_candidates(snapshots)}); "
        f"name one as the revision, or fetch the current one with {_pull_command(model, None)}"
    )


def _candidates(snapshots: Path) -> str:
    names = sorted(path.name for path in snapshots.glob("*") if path.is_dir())
    return "snapshots: " + (", ".join(names) or "none")


def _pull_command(model: str, revision: str | None) -> str:
    return f"`dgpp pull {model}`" if revision is None else f"`dgpp pull {model} --revision {revision}`"


def pull(model: str, revision: str | None = None, progress: bool = True) -> Path:
    """The snapshot directory of a hub id, downloaded into the local cache; `progress` draws bars on stderr.

    Raises CheckpointError when `model` is no hub id, or with the hub's reason when the download fails: no network,
    no such model or revision, or no access to it.
    """
    if not HUB_ID.fullmatch(model):
        raise CheckpointError(f"{model} is not a hub id; `dgpp pull` takes ORG/NAME")
    # Imported here: reading a directory must not pay for it.
    import huggingface_hub
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
    from huggingface_hub.utils import tqdm

    class Silent(tqdm):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

    try:
        directory = huggingface_hub.snapshot_download(
            model,
            revision=revision,
            cache_dir=hub_cache(),
            allow_patterns=list(WANTED),
            ignore_patterns=list(UNWANTED),
            tqdm_class=None if progress else Silent,
        )
    except GatedRepoError as error:
        raise CheckpointError(
            f"{model} is gated: accept its terms on the hub and log in with `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise CheckpointError(f"the hub has no model {model} that you can read; check the name, or log in") from error
    except LocalEntryNotFoundError as error:
        raise CheckpointError(
            f"cannot reach the hub to download {model} ({_reason(error)}); check the network, or copy the model's "
            f"directory here and give its path"
        ) from error
    except Exception as error:  # the hub's client raises errors of its own, of its HTTP library and of the system
        raise CheckpointError(f"cannot download {model}: {_reason(error)}") from error
    return Path(directory)


def _reason(error: BaseException) -> str:
    """The first line of the root cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".splitlines()[0]
