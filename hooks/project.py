"""Where the project is that a build is of."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig


def root_of(config: MkDocsConfig) -> Path:
    """The folder that holds ``mkdocs.yml``."""
    return Path(config.config_file_path).resolve().parent


def repository_of(config: MkDocsConfig) -> str:
    """The address of the repository, without a slash at its end; empty where nobody said it."""
    return str(config.extra.get("repository", "")).rstrip("/")
