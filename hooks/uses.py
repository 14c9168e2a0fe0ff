"""Which public names of attnkit a script uses, and where the API reference describes each."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: An entry of the reference, as mkdocstrings reads it.
ENTRY = re.compile(r"^::: attnkit\.(\w+)$", re.M)


def public_names(root: Path = ROOT) -> dict[str, str]:
    """Every public name of the package, with the module that defines it.

    Read from the stub, which a test holds against the package: a preview then follows an edit.
    """
    stub = ast.parse((root / "attnkit/__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: (node.module or "").removeprefix("attnkit.") for node in imports for alias in node.names}


def uses(script: Path, root: Path = ROOT) -> tuple[str, ...]:
    """The public names that a script uses, in the order of their first use after the imports."""
    tree = parsed(script)
    return used_in(tree, imported(tree), public_names(root))


def used_in(tree: ast.Module, local: dict[str, str], known: dict[str, str]) -> tuple[str, ...]:
    """The public names that a piece of a script uses, in the order of their first use.

    Args:
        tree: the piece.
        local: what the script imports from attnkit, see ``imported``.
        known: see ``public_names``.
    """
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and local.get(node.id) in known:
            found.append((node.lineno, node.col_offset, local[node.id]))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = local.get(node.value.id)  # claims.close, plot.heatmap
            if module is not None and known.get(node.attr) == module:
                found.append((node.lineno, node.col_offset, node.attr))
    return tuple(dict.fromkeys(name for _, _, name in sorted(found)))


def parsed(script: Path) -> ast.Module:
    """The syntax tree of a script."""
    return ast.parse(script.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> dict[str, str]:
    """What a script takes from attnkit: its own name for each, and the name there."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "attnkit"]
    return {alias.asname or alias.name: alias.name for node in imports for alias in node.names}


def entries(root: Path = ROOT) -> dict[str, list[str]]:
    """The pages of the reference, relative to ``docs``, that have an entry for each name."""
    found: dict[str, list[str]] = {}
    for page in sorted((root / "docs/api").glob("*.md")):
        for name in ENTRY.findall(page.read_text(encoding="utf-8")):
            found.setdefault(name, []).append(f"api/{page.name}")
    return found


def entry(name: str, root: Path = ROOT) -> str:
    """Where the reference describes a public name: ``api/<page>.md#attnkit.<name>``.

    Raises:
        KeyError: the reference does not describe it.
    """
    return f"{entries(root)[name][0]}#attnkit.{name}"


def faults(root: Path = ROOT) -> list[str]:
    """What is wrong with the reference: a public name without entry or with several, an entry for nothing."""
    listed, known = entries(root), public_names(root)
    missing = [f"{name} has no entry in docs/api" for name in known if name not in listed]
    twice = [f"{name} has {len(pages)} entries: {', '.join(pages)}" for name, pages in listed.items() if len(pages) > 1]
    strange = [f"{listed[name][0]} has an entry for {name}, no public name" for name in listed if name not in known]
    return missing + twice + strange
