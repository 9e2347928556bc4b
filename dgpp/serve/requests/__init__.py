"""Requests as typed objects: every field is declared once, for the parser and for the API description."""
