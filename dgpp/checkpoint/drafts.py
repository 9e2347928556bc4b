"""Draft layers that a config promises: there, or refused before anything is loaded.

A release names the number of its draft (multi-token prediction) layers in config.json. Where the tensors were left out,
a server that went on without a word would only be slow, so this is an error with the way out in it.
"""

from __future__ import annotations

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.reader import Checkpoint

FIELDS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
"""The fields of config.json, or of its `text_config`, in the releases of different families."""


def check_drafts(checkpoint: Checkpoint) -> None:
    """Raises CheckpointError when config.json promises draft layers and no tensor belongs to one.

    Draft layers are named "mtp." or follow the last layer of the model: "model.layers.45." after layers 0 to 44.
    """
    text = checkpoint.config.get("text_config")
    for where, fields in (("", checkpoint.config), ("text_config.", text)):
        if not isinstance(fields, dict):
            continue
        layers = fields.get("num_hidden_layers")
        for field in FIELDS:
            promised = fields.get(field)
            if not isinstance(promised, int) or promised < 1:
                continue
            if not any(_is_draft(name, layers) for name in checkpoint.tensors):
                raise CheckpointError(
                    f"{checkpoint.directory}/config.json: {where}{field} is {promised}, but no shard holds a draft "
                    f"layer (mtp.* or model.layers.{layers}.*). Download the release's file with them, or set {field} "
                    f"to 0 to run without drafts"
                )


def _is_draft(name: str, layers: object) -> bool:
    return name.startswith("mtp.") or ".mtp." in name or f"layers.{layers}." in name
