"""The mutants of one file: the same source with one small lie in it."""

from __future__ import annotations

import ast
import copy
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# A comparison, and what is nearest to it and wrong.
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
TELLS = ("Error", "wrong", "_fenced_by", "_damage", "_progress")  # what makes sentences for people


@dataclass(frozen=True)
class Function:
    """One that stands in a module or class: the nth (from 0) of this qualified name there."""

    name: str
    nth: int


@dataclass(frozen=True)
class Mutant:
    """`what`: the change in words, which do not change when lines move. `statement`: the lines of
    the statement that is changed. `function`: what it is in; None when it runs at import."""

    line: int
    what: str
    source: str
    statement: range
    function: Function | None


def mutants_of(path: Path) -> list[Mutant]:
    """All of them, in the order of their lines; what is told twice has a number behind it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    ignored = _ignored(tree)
    statements = _statements(tree)
    functions = _functions(tree)
    found: list[Mutant] = []
    seen: dict[str, int] = {}
    for node, replace in list(_places(tree)):
        if id(node) in ignored:
            continue
        statement = statements[id(node)]
        for changed, what in list(_changes(node)):
            replace(changed)
            source = ast.unparse(ast.fix_missing_locations(tree))
            replace(node)
            if isinstance(node, ast.Constant):
                what = f"{what} in: {ast.unparse(statement).splitlines()[0]}"
            seen[what] = seen.get(what, 0) + 1
            named = what if seen[what] == 1 else f"{what} ({seen[what]})"
            function = functions.get(id(node))
            found.append(Mutant(node.lineno, named, source, _lines(statement), function))
    return sorted(found, key=lambda mutant: mutant.line)


Node = ast.expr | ast.stmt


def _places(tree: ast.Module) -> Iterator[tuple[Node, Callable[[ast.AST], None]]]:
    """Each expression and statement, and what puts something else in its place."""
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, Node):
                yield value, functools.partial(setattr, parent, field)
            elif isinstance(value, list):
                for index, item in enumerate(value):
                    if isinstance(item, Node):
                        yield item, functools.partial(value.__setitem__, index)


def _statements(tree: ast.Module) -> dict[int, ast.stmt]:
    """The innermost statement that each node stands in."""
    return {
        id(node): statement
        for statement in ast.walk(tree)  # from the outermost in
        if isinstance(statement, ast.stmt)
        for node in ast.walk(statement)
    }


def _lines(statement: ast.stmt) -> range:
    """The lines of a statement; of one that holds others, those before the first of them."""
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def _functions(tree: ast.Module) -> dict[int, Function]:
    """The outermost function in whose body each node is."""
    seen: Counter[str] = Counter()
    within: dict[int, Function] = {}

    def look(body: Sequence[ast.stmt], prefix: str) -> None:
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                look(statement.body, f"{prefix}{statement.name}.")
            elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                name = prefix + statement.name
                function = Function(name, seen[name])
                seen[name] += 1
                within.update(
                    (id(node), function) for part in statement.body for node in ast.walk(part)
                )

    look(tree.body, "")
    return within


def _ignored(tree: ast.Module) -> set[int]:
    """Nodes in which no lie is told: asserts (they say what is true anyway), sentences of errors,
    names of types, how values lie in memory, and failpoints (it is tests/crash that needs them)."""
    ignored: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST] = []
        silent = isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom)
        if silent or (isinstance(node, ast.Expr) and ".reach(" in ast.unparse(node)):
            parts = [node]
        elif isinstance(node, ast.Call) and _tells(node):
            parts = [*node.args, *node.keywords]
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.ClassDef):
            layout = [word for word in node.keywords if word.arg in ("frozen", "gc")]
            parts = [*node.decorator_list, *layout]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [a.annotation for a in ast.walk(node.args)
                     if isinstance(a, ast.arg) and a.annotation]  # fmt: skip
            parts += [node.returns] if node.returns else []
        for part in parts:
            ignored |= {id(below) for below in ast.walk(part)}
    return ignored


def _tells(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    return any(word in name for word in TELLS)


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """What takes the place of a node, and the change in words."""
    text = ast.unparse(node) if isinstance(node, ast.expr) else ""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        turned = ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
        yield turned, f"{text} -> {ast.unparse(turned)}"
    elif isinstance(node, ast.BoolOp):
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield (new := ast.BoolOp(other, node.values)), f"{text} -> {ast.unparse(new)}"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand, f"{text} -> {ast.unparse(node.operand)}"
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        new_sum = ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        yield new_sum, f"{text} -> {ast.unparse(new_sum)}"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value), f"{node.value} -> {not node.value}"
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1), f"{node.value} -> {node.value + 1}"
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield from _conditions(node)
    elif isinstance(node, ast.Raise | ast.Expr | ast.AugAssign | ast.Break | ast.Continue):
        yield from _left_out(node)
    elif isinstance(node, ast.Assign) and isinstance(
        node.targets[0], ast.Attribute | ast.Subscript
    ):
        yield ast.Pass(), f"left out: {ast.unparse(node)}"
    elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
        yield ast.Return(ast.Constant(None)), f"{ast.unparse(node)} -> return None"


def _conditions(node: ast.If | ast.While | ast.IfExp) -> Iterator[tuple[ast.AST, str]]:
    """Turned around, where no comparison within is turned around already."""
    if isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
        return
    changed = copy.copy(node)
    changed.test = ast.UnaryOp(ast.Not(), node.test)
    yield changed, f"if {ast.unparse(node.test)} -> if not {ast.unparse(node.test)}"


def _left_out(node: ast.stmt) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    yield ast.Pass(), f"left out: {ast.unparse(node).splitlines()[0]}"
