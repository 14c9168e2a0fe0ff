"""The rules by which a module is changed, each in a single place.

Not mutated, because nothing a user computes depends on them: docstrings, annotations, strings, imports,
``__all__``, and what stands in a ``raise`` (the text of the error). The condition that leads to a
``raise`` is mutated, and marked as a check of the input.
"""

import ast
import copy
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

_SWAPS = {
    ast.Add: [ast.Sub], ast.Sub: [ast.Add], ast.Mult: [ast.Div], ast.Div: [ast.Mult], ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.Mult], ast.Pow: [ast.Mult], ast.BitAnd: [ast.BitOr], ast.BitOr: [ast.BitAnd],
    ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt], ast.Gt: [ast.GtE, ast.LtE], ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.Is: [ast.IsNot], ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn], ast.NotIn: [ast.In], ast.And: [ast.Or], ast.Or: [ast.And],
}  # fmt: skip
_ARITHMETIC = (ast.BinOp, ast.AugAssign)
_PAIRS = ("min max", "amin amax", "minimum maximum", "argmin argmax", "any all", "sin cos")
_OTHER = {a: b for pair in map(str.split, _PAIRS) for a, b in (pair, pair[::-1])}
_AXES = ("dim", "dim0", "dim1", "axis", "start_dim", "end_dim")
_RANGES = ("range", "arange")


@dataclass(frozen=True)
class Mutant:
    """A module with one change.

    Attributes:
        module: name of the module, without the package.
        rule: which rule made the change.
        line: where.
        text: that line, without its indentation.
        change: the code before and after it.
        function: the names that lead to the function or class in which it is, outermost first.
        span: first and last line of the statement; whoever runs none of them cannot notice.
        check: whether it changes how bad input is refused.
        code: the changed module, compiled.
        key: digest of the changed module, docstrings left out.
    """

    module: str
    rule: str
    line: int
    text: str
    change: str
    function: tuple[str, ...]
    span: tuple[int, int]
    check: bool
    code: CodeType
    key: str


@dataclass(frozen=True)
class _Place:
    """A node, and how to put another in its place."""

    parent: ast.AST
    field: str
    index: int | None
    function: tuple[str, ...]
    statement: ast.stmt | None
    check: bool
    runs_on_call: bool

    @property
    def node(self) -> ast.AST:
        held = getattr(self.parent, self.field)
        return held if self.index is None else held[self.index]

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants(module: str, source: str, file: str) -> list[Mutant]:
    """Every single-point change of ``source``, in the order of its lines, no two alike."""
    tree = _without_docstrings(ast.parse(source))
    seen, lines = {_digest(module, tree)}, source.splitlines()
    found = []
    for place in list(_places(tree)):
        before = place.node
        for rule, after in _changes(place):
            place.put(ast.fix_missing_locations(ast.copy_location(after, before)))
            key = _digest(module, tree)
            if key not in seen:
                seen.add(key)
                change = f"{_text(before)} → {_text(after)}"
                where = place.function, _span(place), place.check
                text = lines[before.lineno - 1].strip()
                found.append(
                    Mutant(module, rule, before.lineno, text, change, *where, compile(tree, file, "exec"), key)
                )
            place.put(before)
    return sorted(found, key=lambda mutant: mutant.line)


def _changes(place: _Place) -> Iterator[tuple[str, ast.AST]]:
    """Each change of one node with the name of its rule."""
    node = place.node
    if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Pass):
        yield "statement removed", ast.Pass()
    if isinstance(node, _ARITHMETIC):
        yield from (("arithmetic", _with(node, op=op())) for op in _SWAPS.get(type(node.op), []))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult | ast.Pow | ast.FloorDiv | ast.Mod):
        yield "arithmetic", _with(node, left=node.right, right=node.left)
    if isinstance(node, ast.BoolOp):
        yield from (("comparison", _with(node, op=op())) for op in _SWAPS[type(node.op)])
    if isinstance(node, ast.Compare):
        for i, held in enumerate(node.ops):
            for op in _SWAPS[type(held)]:
                yield "comparison", _with(node, ops=[*node.ops[:i], op(), *node.ops[i + 1 :]])
    if isinstance(node, ast.UnaryOp) and not _is_number(node):
        yield ("sign" if isinstance(node.op, ast.USub) else "comparison"), node.operand
    if _is_number(node):
        rule = "axis" if place.field == "value" and getattr(place.parent, "arg", None) in _AXES else "constant"
        value = ast.literal_eval(node)
        yield from ((rule, _number(other)) for other in (value + 1, value - 1, 2 * value))
        yield "sign", _number(-value)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "True/False", ast.Constant(not node.value)
    if isinstance(node, ast.Name) and node.id in _OTHER and isinstance(node.ctx, ast.Load):
        yield "min/max", _with(node, id=_OTHER[node.id])
    if isinstance(node, ast.Attribute) and node.attr in _OTHER:
        yield "min/max", _with(node, attr=_OTHER[node.attr])
    if isinstance(node, ast.Call):
        yield from _calls(node)
    if isinstance(node, ast.Slice):
        yield from _slices(node)


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    arguments = node.args
    for i in range(len(arguments)):
        yield "argument dropped", _with(node, args=arguments[:i] + arguments[i + 1 :])
    for i in range(len(node.keywords)):
        yield "argument dropped", _with(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])
    for i in range(len(arguments) - 1):
        swapped = [*arguments[:i], arguments[i + 1], arguments[i], *arguments[i + 2 :]]
        yield "arguments swapped", _with(node, args=swapped)
    if getattr(node.func, "id", getattr(node.func, "attr", None)) in _RANGES:
        for i, argument in enumerate(arguments):
            for moved in _moved(argument):
                yield "range", _with(node, args=[*arguments[:i], moved, *arguments[i + 1 :]])


def _slices(node: ast.Slice) -> Iterator[tuple[str, ast.AST]]:
    for moved in [_number(1)] if node.lower is None else _moved(node.lower):
        yield "slice", _with(node, lower=moved)
    for moved in [_number(-1)] if node.upper is None else _moved(node.upper):
        yield "slice", _with(node, upper=moved)


def _moved(node: ast.expr) -> list[ast.expr]:
    if _is_number(node):
        return [_number(ast.literal_eval(node) + step) for step in (1, -1)]
    return [ast.BinOp(node, op, ast.Constant(1)) for op in (ast.Add(), ast.Sub())]


def _places(
    parent: ast.AST,
    function: tuple[str, ...] = (),
    statement: ast.stmt | None = None,
    check: bool = False,
    on_call: bool = False,
) -> Iterator[_Place]:
    """Every place of the tree that may be mutated."""
    for field, held in ast.iter_fields(parent):
        if field in ("annotation", "returns", "type_params", "format_spec"):
            continue
        for index, node in enumerate(held) if isinstance(held, list) else [(None, held)]:
            if not isinstance(node, ast.AST) or _is_left_alone(node):
                continue
            own = node if isinstance(node, ast.stmt) else statement
            checks = check or (isinstance(node, ast.stmt) and _refuses(node))
            yield _Place(parent, field, index, function, own, checks, on_call)
            if not _is_number(node):
                named = isinstance(node, ast.FunctionDef | ast.ClassDef)
                names = (*function, node.name) if named else function
                yield from _places(node, names, own, checks, on_call or isinstance(node, ast.FunctionDef))


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # what a constant means, said in a string below it
    return isinstance(node, ast.Raise | ast.Import | ast.ImportFrom)


def _refuses(node: ast.stmt) -> bool:
    """Whether all a statement does is to refuse bad input."""
    if isinstance(node, ast.FunctionDef):
        return re.match(r"_?require", node.name) is not None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        name = getattr(node.value.func, "id", getattr(node.value.func, "attr", ""))
        return re.match(r"_?require", name) is not None
    if isinstance(node, ast.Try):
        return all(_raises(handler.body) for handler in node.handlers) and bool(node.handlers)
    return isinstance(node, ast.If | ast.For) and not node.orelse and _raises(node.body)


def _raises(body: list[ast.stmt]) -> bool:
    # ClaimError is what attnkit.claims is for; any other error tells of bad input.
    return all((isinstance(s, ast.Raise) and "ClaimError" not in ast.dump(s)) or _refuses(s) for s in body)


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _number(value: float) -> ast.expr:
    return ast.UnaryOp(ast.USub(), ast.Constant(-value)) if value < 0 else ast.Constant(value)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _span(place: _Place) -> tuple[int, int]:
    """Lines of the statement; a definition runs at import, so those of its function; 0, 0: every line."""
    statement = place.statement
    if not place.runs_on_call:
        return (0, 0)
    if isinstance(statement, ast.FunctionDef):
        return (statement.lineno, statement.end_lineno)
    body = getattr(statement, "body", None)
    return (statement.lineno, max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.copy_location(ast.Pass(), node.body[0])]
    return tree


def _digest(module: str, tree: ast.Module) -> str:
    return hashlib.sha256(f"{module}\n{ast.dump(tree)}".encode()).hexdigest()[:16]


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Pass):
        return "nothing"
    if isinstance(node, ast.Slice):
        node = ast.Subscript(ast.Name("x"), node)
    return " ".join(ast.unparse(node).split())
