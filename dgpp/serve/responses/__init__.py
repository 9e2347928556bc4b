"""POST /v1/responses: OpenAI's Responses API as a translation of chat requests and their turns."""

from dgpp.serve.responses.routes import blueprint

__all__ = ["blueprint"]
