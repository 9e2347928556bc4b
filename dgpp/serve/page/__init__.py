"""A chat page for people, at `/`: plain files, no build step, nothing from other servers."""

from dgpp.serve.page.page import blueprint

__all__ = ["blueprint"]
