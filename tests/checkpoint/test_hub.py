"""The rules of the local hub cache, without a network."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from dgpp.checkpoint import hub
from dgpp.checkpoint.embedded import embedded_path
from dgpp.checkpoint.errors import CheckpointError

ID = "HuggingFaceTB/SmolLM2-135M"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache; nothing of the machine's own is seen."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HOME", raising=False)
    return tmp_path / "hub"


def snapshot(cache: Path, commit: str, ref: str | None = None) -> Path:
    repository = cache / "models--HuggingFaceTB--SmolLM2-135M"
    directory = repository / "snapshots" / commit
    directory.mkdir(parents=True)
    if ref is not None:
        (repository / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (repository / "refs" / ref).write_text(f"{commit}\n")
    return directory


def test_cache_directory_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("HF_HOME", "~/hf")
    monkeypatch.setenv("HF_HUB_CACHE", "~/cache")
    assert hub.hub_cache() == Path("/home/me/cache")
    monkeypatch.setenv("HF_HUB_CACHE", "")
    assert hub.hub_cache() == Path("/home/me/hf/hub")
    monkeypatch.delenv("HF_HOME")
    assert hub.hub_cache() == Path("/home/me/.cache/huggingface/hub")


def test_nothing_means_the_embedded_model() -> None:
    assert hub.resolve() == embedded_path()
    assert (hub.resolve() / "config.json").is_file()


def test_a_directory_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert hub.resolve(str(tmp_path / "org" / "name")) == tmp_path / "org" / "name"
    monkeypatch.chdir(tmp_path)
    assert hub.resolve("org/name") == Path("org/name")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub.resolve("~/org") == tmp_path / "org"
    with pytest.raises(CheckpointError, match=r"is a directory; a revision \(v1\)"):
        hub.resolve("org/name", "v1")


def test_refs_main_wins_over_other_snapshots(cache: Path) -> None:
    snapshot(cache, "aaa")
    main = snapshot(cache, "bbb", ref="main")
    assert hub.resolve(ID) == main


def test_a_single_snapshot_needs_no_ref(cache: Path) -> None:
    only = snapshot(cache, "aaa")
    assert hub.resolve(ID) == only


def test_several_snapshots_without_a_ref_are_named(cache: Path) -> None:
    snapshot(cache, "aaa")
    chosen = snapshot(cache, "bbb")
    with pytest.raises(CheckpointError, match=rf"2 snapshots to choose from \(snapshots: aaa, bbb\).*`dgpp pull {ID}`"):
        hub.resolve(ID)
    assert hub.resolve(ID, "bbb") == chosen


def test_a_ref_to_a_snapshot_that_is_not_there(cache: Path) -> None:
    directory = snapshot(cache, "aaa", ref="main")
    directory.rmdir()
    snapshot(cache, "bbb")
    with pytest.raises(CheckpointError, match=rf"'aaa', which is not in the cache; .*`dgpp pull {ID}`"):
        hub.resolve(ID)


def test_no_snapshot_and_no_repository(cache: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"neither a directory nor in the hub cache .*`dgpp pull {ID}`"):
        hub.resolve(ID)
    (cache / "models--HuggingFaceTB--SmolLM2-135M" / "snapshots").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=rf"no snapshot .*`dgpp pull {ID}`"):
        hub.resolve(ID)


def test_a_revision_is_a_ref_or_a_commit(cache: Path) -> None:
    snapshot(cache, "aaa", ref="main")
    other = snapshot(cache, "bbb", ref="refs/pr/1")
    assert hub.resolve(ID, "refs/pr/1") == other
    assert hub.resolve(ID, "bbb") == other
    with pytest.raises(CheckpointError, match=r"revision v2 .*snapshots: aaa, bbb.*--revision v2"):
        hub.resolve(ID, "v2")
    for outside in ("../../etc", "/etc", "a/../../b", ""):
        with pytest.raises(CheckpointError, match="not a branch, tag or commit"):
            hub.resolve(ID, outside)


@pytest.mark.parametrize("name", ["gpt2", "a/b/c", "/no/such/place", "", "../x/y", "org/na me"])
def test_neither_a_directory_nor_a_hub_id(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError):
        hub.resolve(name if name else "no-such-directory")


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    with pytest.raises(CheckpointError, match="is not a directory"):
        hub.resolve(str(tmp_path / "model.gguf"))


def test_pull_downloads_into_the_same_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(model: str, **options: object) -> str:
        assert (model, options["revision"], options["cache_dir"]) == (ID, "v1", cache)
        assert "*.safetensors" in options["allow_patterns"]  # type: ignore[operator]
        silent = options["tqdm_class"]
        assert silent(total=3).disable  # type: ignore[operator]
        return str(snapshot(cache, "aaa", ref="main"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert hub.pull(ID, "v1", progress=False) == hub.resolve(ID)


def test_pull_without_a_network_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> str:
        try:
            raise ConnectionError("Name or service not known\nsecond line")
        except ConnectionError as error:
            raise LocalEntryNotFoundError("a long explanation") from error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(CheckpointError, match=r"cannot reach the hub .*ConnectionError: Name or service not known"):
        hub.pull(ID)


def test_pull_with_the_real_client_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="offline mode is enabled"):
        hub.pull(ID, progress=False)


def test_pull_takes_hub_ids_only() -> None:
    with pytest.raises(CheckpointError, match="ORG/NAME"):
        hub.pull("/some/directory")
