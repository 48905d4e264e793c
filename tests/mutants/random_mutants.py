"""Random small changes of the files on which safety rests; a seed decides which.

After `make coverage-core` only the tests that reach the changed line are run.

usage: python -m tests.mutants.random_mutants [--count 200] [--start 0] [--seed 1] [--jobs 2] [--file guard]
"""

import argparse
import ast
import random
import sys
from collections import Counter
from collections.abc import Iterator

from tests.mutants.core_files import FILES
from tests.mutants.coverage_report import tests_by_line
from tests.mutants.planted import ROOT
from tests.mutants.scratch import Bounds, Change, run_all

GOAL = 0.85
_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def changes_of(file: str) -> Iterator[Change]:
    """Every change of one file that we know to make."""
    text = (ROOT / file).read_text("utf-8")
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()
    reached = tests_by_line(file)
    for node in _reached(ast.parse(text)):
        for new in _variants(node):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            written = new if isinstance(new, str) else f"({ast.unparse(new)})"
            changed = (data[:begin] + written.encode() + data[end:]).decode()
            name = f"{file.rpartition('/')[2]}:{node.lineno} {' '.join(written.split())[:60]}"
            yield Change(name, file, changed, reached.get(node.lineno, FILES[file]))


def _reached(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The nodes that a run reaches: no annotations, docstrings, imports and messages."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.AnnAssign | ast.arg) and not getattr(child, "value", None):
            continue
        is_typing = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if is_typing or isinstance(child, ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Raise):
            continue
        if isinstance(child, ast.AnnAssign):
            yield from _reached(ast.Expression(body=child.value)) if child.value is not None else ()
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            # Default values and the body; annotations are for readers.
            for part in (*child.args.defaults, *filter(None, child.args.kw_defaults), *child.body):
                yield from _reached(
                    ast.Module(body=[ast.Expr(part)] if isinstance(part, ast.expr) else [part], type_ignores=[])
                )
            continue
        if isinstance(child, ast.ClassDef):
            # Bases and options of a class are declarations.
            yield from _reached(ast.Module(body=child.body, type_ignores=[]))
            continue
        if isinstance(child, ast.expr | ast.stmt):
            yield child
        yield from _reached(child)


def _variants(node: ast.AST) -> Iterator[ast.expr | str]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _SWAPPED:
            yield ast.Compare(left=left, ops=[_SWAPPED[type(op)]()], comparators=[right])  # pyright: ignore
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(op=_SWAPPED[type(op)](), values=values)  # pyright: ignore
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SWAPPED:
            yield ast.BinOp(left=left, op=_SWAPPED[type(op)](), right=right)  # pyright: ignore
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test=test, body=orelse, orelse=body)
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
        case ast.Continue():
            yield "break"
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "pass"
        case _:
            return


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--start", type=int, default=0, help="leave out so many of them, which were tested before")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--file", default="", help="only files with this in their path")
    options = parser.parse_args()
    known = [change for file in FILES if options.file in file for change in changes_of(file)]
    random.Random(options.seed).shuffle(known)
    chosen = known[options.start : options.count]
    print(f"{len(chosen)} of {len(known):,} possible changes, seed {options.seed}", flush=True)
    verdicts = run_all(chosen, Bounds(options.seconds, seeds=0), options.jobs, shows_all=False)
    killed = Counter(one.change.file for one in verdicts if one.end == "caught")
    total = Counter(one.change.file for one in verdicts)
    for file, count in sorted(total.items()):
        print(f"{killed[file]:4} of {count:3} killed  {file}")
    rate = sum(killed.values()) / len(verdicts)
    print(f"{sum(killed.values())} of {len(verdicts)} killed: {rate:.0%}, at least {GOAL:.0%} wanted")
    return int(rate < GOAL)


if __name__ == "__main__":
    sys.exit(main())
