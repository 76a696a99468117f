"""The version of this client, which it names in its User-Agent; a test holds it equal to pyproject.toml's."""

__version__ = "0.1.0"
