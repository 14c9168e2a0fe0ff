"""Where the project is that a build is of."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig


def root_of(config: MkDocsConfig) -> Path:
    """The folder that holds ``mkdocs.yml``."""
    return Path(config.config_file_path).resolve().parent


def ending_of(config: MkDocsConfig) -> str:
    """What follows a page's name in its address: a folder's slash, or for pages opened as files their suffix."""
    return "/" if config.use_directory_urls else ".html"


def repository_of(config: MkDocsConfig) -> str:
    """The address of the repository, without a slash at its end; empty where nobody said it."""
    return str(config.extra.get("repository", "")).rstrip("/")
