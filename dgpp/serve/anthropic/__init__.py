"""/v1/messages: Anthropic's Messages API as a translation of chat requests and their turns."""

from dgpp.serve.anthropic.errors import error_reply, owns
from dgpp.serve.anthropic.routes import blueprint

__all__ = ["blueprint", "error_reply", "owns"]
