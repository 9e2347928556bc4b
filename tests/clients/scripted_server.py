"""A server process over a scripted engine: `python -m tests.clients.scripted_server SCRIPT.json`.

It speaks for a model that calls tools and thinks, with room for the prompts of agents. SCRIPT.json is a list of
`{"when": text, "say": text}`: the answer to a prompt is what the first entry says whose `when` stands in the prompt
after its last user turn began. The URL is printed when it listens.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dgpp.engine.request import EngineInfo, Request
from dgpp.engine.scripted import ScriptedEngine
from dgpp.serve.server import HttpServer
from dgpp.serve.service import Service
from dgpp.serve.settings import Settings
from dgpp.text.template import ChatTemplate
from tests.serve.support import END, MARKERS, byte_tokenizer, ids
from tests.text.templates import QWEN38

NAME = "scripted"
ROOM = 1 << 21
USER = "<|im_start|>user\n"


def answer_to(prompt: str, script: Sequence[dict[str, Any]]) -> str:
    """What the script says to a prompt."""
    turn = prompt[prompt.rindex(USER) :]
    return next(str(entry["say"]) for entry in script if entry["when"] in turn)


def main() -> None:
    """Serves until it is told to stop."""
    script = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    tokenizer = byte_tokenizer(MARKERS)

    def said(request: Request, index: int) -> list[int]:
        text = b"".join(tokenizer.token_bytes(id) for id in request.prompt).decode("utf-8", "replace")
        return ids(answer_to(text, script))

    engine = ScriptedEngine(said, info=EngineInfo(512, ROOM, ROOM, max_concurrency=8, queue_limit=64))
    template = ChatTemplate(QWEN38, control=tokenizer.control_tokens, special_tokens=tokenizer.special_tokens)
    settings = Settings(port=0)
    service = Service(engine, tokenizer, template, names=(NAME,), eos=frozenset({END}), settings=settings)
    server = HttpServer(service, settings)
    print(f"listening at {server.url}", flush=True)
    server.run()


if __name__ == "__main__":
    main()
