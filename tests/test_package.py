"""The package as a whole: names, laziness, the stub, and which module may import which."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import attnkit

HOME = Path(attnkit.__file__).parent
FILES = sorted(path.stem for path in HOME.glob("*.py") if path.stem != "__init__")
MODULES = [name for name in FILES if not name.startswith("_")]


def in_a_fresh_process(code):
    """Run code with this attnkit and no other module loaded before it; return what it prints."""
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, cwd=HOME.parent, capture_output=True, text=True, check=True).stdout.split()


def test_importing_the_package_loads_no_torch_and_no_module():
    new = in_a_fresh_process(
        "import sys; before = set(sys.modules)\n"
        "import attnkit\n"
        "attnkit.__all__, dir(attnkit)\n"
        "print(*(set(sys.modules) - before))"
    )
    assert {name for name in new if name.startswith("attnkit")} == {"attnkit"}
    assert not {name.split(".")[0] for name in new} & {"torch", "numpy", "matplotlib"}


def test_a_name_loads_the_modules_it_needs_and_no_matplotlib():
    loaded = in_a_fresh_process(
        "import sys, attnkit\n"
        "attnkit.causal_mask\n"
        "print(*(name for name in sys.modules if name.startswith('attnkit')), 'matplotlib' in sys.modules)\n"
        "print(attnkit.text.__name__)\n"
        f"[__import__('attnkit.' + name) for name in {MODULES!r} if name != 'plot']\n"
        "print('matplotlib' in sys.modules)"
    )
    assert loaded == ["attnkit", "attnkit.masks", "False", "attnkit.text", "False"]


def test_every_module_is_registered_and_every_registered_module_exists():
    assert sorted(attnkit._MODULES) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_the_package_offers_exactly_the_public_names_of_each_module(module):
    public = import_module(f"attnkit.{module}").__all__
    assert sorted(attnkit._MODULES[module]) == sorted(public)
    assert len(set(public)) == len(public)
    for name in public:
        assert getattr(attnkit, name) is getattr(import_module(f"attnkit.{module}"), name)


@pytest.mark.parametrize("module", MODULES)
def test_a_function_or_class_is_offered_by_the_module_that_defines_it(module):
    for name in attnkit._MODULES[module]:
        assert getattr(getattr(attnkit, name), "__module__", f"attnkit.{module}") == f"attnkit.{module}"


def test_all_is_the_union_of_the_modules_and_no_name_appears_twice():
    names = [name for module in MODULES for name in import_module(f"attnkit.{module}").__all__]
    assert sorted(attnkit.__all__) == sorted(names)
    assert len(set(names)) == len(names)


def test_no_public_name_is_the_name_of_a_module():
    assert not set(attnkit.__all__) & set(MODULES)


def test_the_stub_lists_exactly_the_names_of_the_package_each_from_its_module():
    listed = {}
    for node in ast.parse((HOME / "__init__.pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.asname == alias.name, "only `name as name` is re-exported for a type checker"
                assert alias.name not in listed
                listed[alias.name] = node.module
    assert listed == {name: f"attnkit.{module}" for module, names in attnkit._MODULES.items() for name in names}


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_attributes_too(module):
    assert getattr(attnkit, module) is import_module(f"attnkit.{module}")


def test_completion_sees_names_and_modules():
    assert set(dir(attnkit)) >= set(attnkit.__all__) | set(MODULES)


def test_a_star_import_brings_every_name():
    namespace = {}
    exec("from attnkit import *", namespace)
    assert set(attnkit.__all__) <= set(namespace)


def test_the_checks_of_the_labs_are_a_package_of_their_own():
    from attnkit import labs

    assert attnkit.labs is labs
    assert "labs" in dir(attnkit)
    assert all(hasattr(labs, name) for name in labs.__all__)
    assert not set(labs.__all__) & set(attnkit.__all__)


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match=r"^module 'attnkit' has no attribute 'atention'$"):
        attnkit.atention  # noqa: B018
    with pytest.raises(ImportError, match="atention"):
        exec("from attnkit import atention")


def imports_of(path):
    """Top-level packages, or attnkit's own modules in full, that a file imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("module", [*FILES, *(f"labs/{path.stem}" for path in HOME.glob("labs/*.py"))])
def test_modules_import_torch_and_the_standard_library_only(module):
    allowed = {"torch", "attnkit", *sys.stdlib_module_names}
    if module == "plot":
        allowed |= {"matplotlib", "numpy"}
    imported = set(imports_of(HOME / f"{module}.py"))
    assert {name.split(".")[0] for name in imported} <= allowed
    assert "attnkit.plot" not in imported


def test_the_package_says_that_it_is_typed_and_carries_its_style():
    assert (HOME / "py.typed").is_file()
    assert (HOME / "paper.mplstyle").is_file()


def test_a_module_is_an_attribute_of_the_package_even_before_it_was_imported():
    assert attnkit.__getattr__("masks") is import_module("attnkit.masks")
