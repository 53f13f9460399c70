"""Checks the tree itself: floors, cycles, banned things, names, sizes, words, limits, error codes.

`python tools/tidy.py [folder]` prints one line for each violation, `file:line rule message`, and
ends with 1 if there was one. The rules and their exceptions are data, in `tools/tidy_rules.py`.
Standard library only.
"""

from __future__ import annotations

import ast
import gc
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools.tidy_asserts import check_asserts
from tools.tidy_names import check_glossary, check_identifiers, check_names, check_used
from tools.tidy_owners import check_owners
from tools.tidy_rules import (
    BANNED_CALLS,
    BANNED_METHODS,
    BANNED_MODULES,
    CATCH_ALL,
    CLASS_FIELDS_MAX,
    CODE_SUFFIXES,
    FILE_LINES_MAX,
    FLOAT_FREE_ROOMS,
    FLOORS,
    FORBIDDEN_WORDS,
    FUNCTION_LINES_MAX,
    IMPORTED_BY_OTHERS,
    LAZY_IMPORTS,
    LINE_LENGTH_MAX,
    MODULE_LINES_MAX,
    MODULE_OF,
    ONLY_IN,
    PACKAGES,
    PATIENCE_S_MIN,
    PATIENT_TESTS,
    PURE_ROOMS,
    REPEATABLE_ROOMS,
    SLEEPS,
    SMALL_ROOMS,
    STILL_LARGE,
    UNFINISHED,
    WRAPPED,
)
from tools.tidy_sectors import check_sectors
from tools.tidy_slices import check_slices
from tools.tidy_source import (
    PROGRAM,
    Import,
    Source,
    Violation,
    name_of,
    room_of,
    sources_read,
    target_of,
)

# --- who may import whom --------------------------------------------------------------------------


def in_rooms(room: str | None, patterns: Iterable[str]) -> bool:
    return room is not None and any(fnmatchcase(room, pattern) for pattern in patterns)


def check_floors(source: Source, modules: set[str]) -> None:
    room = source.room
    if room is None:
        return
    allowed = floor_of(room)
    for imported in source.imports:
        target = target_of(imported, modules)
        other = room_of(target)
        if other is None:
            check_package(source, room, imported)
        elif allowed is None:
            source.report(imported.line, "floor", f"no floor is known for {room}")
        elif not reachable(room, other, allowed):
            source.report(imported.line, "floor", f"{room or PROGRAM} may not import {target}")


def floor_of(room: str) -> tuple[str, ...] | None:
    if room in FLOORS:
        return FLOORS[room]
    return next((FLOORS[key] for key in FLOORS if "*" in key and fnmatchcase(room, key)), None)


def reachable(room: str, other: str, allowed: tuple[str, ...]) -> bool:
    own = room.split("/")[-1]
    return other == "" or any(fnmatchcase(other, pattern.replace("=", own)) for pattern in allowed)


def check_package(source: Source, room: str, imported: Import) -> None:
    package = imported.module.split(".")[0]
    if package in sys.stdlib_module_names or package == "__future__":
        if package in BANNED_MODULES and in_rooms(room, PURE_ROOMS):
            source.report(imported.line, "pure", f"{package} is banned in {room}")
        return
    allowed = next((names for key, names in PACKAGES if fnmatchcase(room, key)), None)
    home = ONLY_IN.get(package)
    if (allowed is not None and package not in allowed) or (home is not None and home != room):
        source.report(imported.line, "package", f"{room or PROGRAM} may not import {package}")


def check_imports(source: Source) -> None:
    """Places and manners of imports, in every Python file."""
    for imported in source.imports:
        whole = f"{imported.module}.{imported.name}".rstrip(".")
        if imported.name == "*":
            source.report(imported.line, "star", f"star import of {imported.module}")
        if imported.name.startswith("_") and not imported.name.startswith("__"):
            if imported.module.split(".")[0] == PROGRAM:
                source.report(imported.line, "private", f"{whole} is private")
        if imported.inside_function and not is_lazy(source.module, imported.module, whole):
            source.report(imported.line, "lazy", f"import of {whole} inside a function")
        if source.room is None and imported.module.split(".")[0] == "pyspark":
            if not source.path.startswith("tests/reports/"):
                source.report(imported.line, "package", "only reports import pyspark")


def check_wrapped(source: Source) -> None:
    """What others wrote is reached through our own definition over it."""
    if not source.path.startswith(f"{PROGRAM}/"):
        return
    named = [(i.line, f"{i.module}.{i.name}".rstrip(".")) for i in source.imports]
    names = [node for node in source.nodes if isinstance(node, ast.Attribute)]
    for line, name in [*named, *((node.lineno, ast.unparse(node)) for node in names)]:
        home, instead = WRAPPED.get(name, (source.path, ""))
        if source.path != home:
            source.report(line, "wrapped", f"{name}: take {instead}")


def is_lazy(module: str, *imported: str) -> bool:
    return any(
        fnmatchcase(module, importer) and any(fnmatchcase(name, wanted) for name in imported)
        for importer, wanted, _ in LAZY_IMPORTS
    )


def check_cycles(sources: list[Source]) -> None:
    ours = {source.module: source for source in sources if source.room is not None}
    graph: dict[str, dict[str, int]] = {name: {} for name in ours}
    for name, source in ours.items():
        for imported in source.imports:
            target = target_of(imported, set(ours))
            if target in ours and target != name:
                graph[name].setdefault(target, imported.line)
    for circle in circles(graph):
        first, second = circle[0], circle[1]
        ours[first].report(graph[first][second], "cycle", " -> ".join([*circle, first]))


def circles(graph: dict[str, dict[str, int]]) -> Iterator[list[str]]:
    """One shortest circle through each module that is on one and was in no circle before."""
    seen: set[str] = set()
    for start in sorted(graph):
        if start in seen:
            continue
        came_from: dict[str, str] = {}
        queue = [start]
        for node in queue:
            fresh = [other for other in sorted(graph[node]) if other not in came_from]
            came_from.update(dict.fromkeys(fresh, node))
            queue += [other for other in fresh if other != start]
        if start not in came_from:
            continue
        circle = [start]
        while (before := came_from[circle[-1]]) != start:
            circle.append(before)
        seen.update(circle)
        yield [start, *reversed(circle[1:])]


# --- what a run may depend on ---------------------------------------------------------------------


def check_repeatable(source: Source) -> None:
    if not in_rooms(source.room, PURE_ROOMS):
        return
    strict = in_rooms(source.room, REPEATABLE_ROOMS)
    without_floats = in_rooms(source.room, FLOAT_FREE_ROOMS)
    sets = names_of_sets(source.nodes)
    for node in source.nodes:
        if isinstance(node, ast.Call):
            check_clock(source, node)
        if strict:
            check_builtin(source, node)
            check_order(source, node, sets)
        if without_floats and isinstance(node, ast.Constant):
            if isinstance(node.value, float):
                source.report(node.lineno, "float", f"{node.value} in a core that decides")


def check_clock(source: Source, node: ast.Call) -> None:
    words = ast.unparse(node.func).split(".")
    if words[-1] in BANNED_METHODS or words[-2:] == ["datetime", "now"]:
        message = f"{'.'.join(words)}() differs from run to run"
        source.report(node.lineno, "repeatable", message)


def check_builtin(source: Source, node: ast.AST) -> None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if reason := BANNED_CALLS.get(node.func.id):
            source.report(node.lineno, "repeatable", f"{node.func.id}() {reason}")


def check_order(source: Source, node: ast.AST, sets: set[str]) -> None:
    for iterable in iterables_of(node):
        if is_set(iterable, sets):
            source.report(iterable.lineno, "order", "iteration over a set; use sorted()")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "pop" and not node.args and is_set(node.func.value, sets):
            source.report(node.lineno, "order", "pop() from a set takes any of its elements")


def iterables_of(node: ast.AST) -> Iterator[ast.expr]:
    """What is walked in order by this node."""
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield node.iter
    elif isinstance(node, ast.Starred):
        yield node.value
    elif isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name):
        if node.func.id in {"list", "tuple", "enumerate", "iter", "zip", "map", "filter"}:
            yield from node.args


def names_of_sets(nodes: list[ast.AST]) -> set[str]:
    """Names and attributes (`self.x` as `.x`) that only ever hold sets, as far as can be seen."""
    held: dict[str, list[bool]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            pairs = [(target, is_set(node.value, set())) for target in node.targets]
        elif isinstance(node, ast.AnnAssign):
            pairs = [(node.target, is_set_type(node.annotation))]
        elif isinstance(node, ast.arg):
            typed = node.annotation is not None and is_set_type(node.annotation)
            held.setdefault(node.arg, []).append(typed)
            continue
        elif isinstance(node, ast.ClassDef):
            for field_ in node.body:  # the fields of a dataclass are read as attributes
                if isinstance(field_, ast.AnnAssign) and isinstance(field_.target, ast.Name):
                    typed = is_set_type(field_.annotation)
                    held.setdefault(f".{field_.target.id}", []).append(typed)
            continue
        else:
            continue
        for target, verdict in pairs:
            name = name_of(target)
            if name:
                held.setdefault(name, []).append(verdict)
    return {name for name, verdicts in held.items() if all(verdicts)}


def is_set_type(annotation: ast.expr) -> bool:
    return ast.unparse(annotation).strip("'\"").split("[")[0] in {"set", "frozenset"}


def is_set(node: ast.expr, sets: set[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in {"set", "frozenset"}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub):
        return is_set(node.left, sets) or is_set(node.right, sets)
    return name_of(node) in sets


# --- shape ----------------------------------------------------------------------------------------


def check_sizes(source: Source) -> None:
    suffix = Path(source.path).suffix
    if suffix in CODE_SUFFIXES and len(source.lines) > FILE_LINES_MAX:
        message = f"{len(source.lines)} lines in a file, at most {FILE_LINES_MAX}"
        source.report(FILE_LINES_MAX + 1, "file", message)
    if suffix in CODE_SUFFIXES:
        for number, line in enumerate(source.lines, 1):
            if len(line) > LINE_LENGTH_MAX:
                source.report(number, "line", f"{len(line)} columns, at most {LINE_LENGTH_MAX}")
    if not source.is_python:
        return
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                message = f"{node.name} has {count} lines, at most {FUNCTION_LINES_MAX}"
                source.report(node.lineno, "function", message)


def check_small(source: Source) -> None:
    """Modules and classes of SMALL_ROOMS keep their bounds, or shrink towards them."""
    if not in_rooms(source.room, SMALL_ROOMS):
        return
    large = {name: size for path, name, size in STILL_LARGE if path == source.path}
    sizes = {"": (1, len(source.lines), MODULE_LINES_MAX, "lines in a module")}
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            count = len(fields_of(node))
            sizes[node.name] = (node.lineno, count, CLASS_FIELDS_MAX, f"fields in {node.name}")
    for name, (line, size, size_max, what) in sizes.items():
        allowed = max(size_max, large.pop(name, size_max))
        if size > allowed:
            source.report(line, "small", f"{size} {what}, at most {allowed}")
        if size <= size_max < allowed:
            source.report(line, "small", f"{size} {what}: take its row out of STILL_LARGE")
    for name in large:
        source.report(1, "small", f"STILL_LARGE names {name}, which is not here")


def fields_of(node: ast.ClassDef) -> set[str]:
    """What a class declares in its body, and what its methods set on `self`."""
    fields: set[str] = set()
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if "ClassVar" not in ast.unparse(statement.annotation):
                fields.add(statement.target.id)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            if isinstance(inner.value, ast.Name) and inner.value.id == "self":
                fields.add(inner.attr)
    return fields


def check_catch_all(source: Source) -> None:
    found = [
        node
        for node in source.nodes
        if isinstance(node, ast.ExceptHandler) and catches_all(node.type) and not passes_on(node)
    ]
    allowed = sum(count for where, count, _ in CATCH_ALL if fnmatchcase(source.path, where))
    for node in found[allowed:]:
        source.report(node.lineno, "except", "catches everything; name what you expect")


def catches_all(kind: ast.expr | None) -> bool:
    if kind is None:
        return True
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(k, ast.Name) and k.id in {"Exception", "BaseException"} for k in kinds)


def passes_on(handler: ast.ExceptHandler) -> bool:
    """Whether it only tidies up: it names what it catches, returns nowhere and raises it again."""
    last = handler.body[-1]
    leaves = (ast.Return, ast.Break, ast.Continue)
    stays = not any(isinstance(node, leaves) for node in ast.walk(handler))
    again = isinstance(last, ast.Raise) and last.exc is None
    return handler.type is not None and stays and again


def check_patience(source: Source) -> None:
    """Tests wait for what they caused, for as long as a busy machine may take."""
    if not any(fnmatchcase(source.path, where) for where in PATIENT_TESTS):
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and called(node) in {"timeout", "within"} and node.args:
            bound = node.args[0]
            if isinstance(bound, ast.Constant) and isinstance(bound.value, int | float):
                if bound.value < PATIENCE_S_MIN:
                    message = f"{bound.value} s is a claim about speed: tests/patience.py"
                    source.report(node.lineno, "patience", message)
    found = sorted(sleeps_before_asserting(source.nodes))
    allowed = sum(count for where, count, _ in SLEEPS if fnmatchcase(source.path, where))
    for line in found[allowed:]:
        source.report(line, "patience", "sleeps and asserts: wait until it holds")


def sleeps_before_asserting(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Lines; a turn of the loop, `sleep(0)`, is no sleep."""
    for node in nodes:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for first, second in zip(block, block[1:], strict=False):
                call = first.value if isinstance(first, ast.Expr) else None
                call = call.value if isinstance(call, ast.Await) else call
                if isinstance(call, ast.Call) and isinstance(second, ast.Assert):
                    if called(call) == "sleep" and [*map(ast.unparse, call.args)] != ["0"]:
                        yield first.lineno


def called(call: ast.Call) -> str:
    """The last word of what is called."""
    return ast.unparse(call.func).rpartition(".")[2]


def check_package_front(source: Source) -> None:
    """A package's first file tells its theory of operation and holds nothing else."""
    if not source.is_package or source.room is None:
        return
    if not ast.get_docstring(source.tree):
        source.report(1, "docstring", "a package opens with its theory of operation")
    if source.room == "":
        return  # the version stands there
    for node in source.tree.body[1:]:
        source.report(node.lineno, "front", "nothing but the docstring lives in __init__.py")


def check_words(source: Source) -> None:
    for number, line in enumerate(source.lines, 1):
        for pattern, what in FORBIDDEN_WORDS:
            if match := pattern.search(line):
                source.report(number, "words", f"{match.group()!r} names a {what}")
        if match := UNFINISHED.search(line):
            source.report(number, "todo", f"{match.group()} left behind")


def check_lock(source: Source) -> None:
    """Every package of a lock has an exact version and hashes, and no address."""
    if not fnmatchcase(source.path, "packaging/locks/*.txt"):
        return
    for number, line in enumerate(source.lines, 1):
        if "://" in line or line.startswith("-"):
            source.report(number, "locks", "a lock names no address and no option")
        if line[:1].isalnum() and not re.match(r"[\w.\-]+==[\w.]+ \\$", line):
            source.report(number, "locks", "no exact version followed by hashes")


def check_dependencies(sources: dict[str, Source]) -> None:
    """What a node installs is imported by the program, and README says why each is there."""
    wanted, readme = sources.get("packaging/locks/node.in"), sources.get("README.md")
    if wanted is None or readme is None:
        return
    program = [
        source
        for source in sources.values()
        if source.is_python and source.path.startswith(f"{PROGRAM}/")
    ]
    imported = {found.module.split(".")[0] for source in program for found in source.imports}
    by_name = re.compile(r"import_module\(\"(\w+)")
    imported |= {name for source in program for name in by_name.findall(source.text)}
    for number, line in enumerate(wanted.lines, 1):
        name = re.split(r"[<>=# ]", line)[0]
        if not name:
            continue
        module = MODULE_OF.get(name, name)
        if module not in imported and IMPORTED_BY_OTHERS.get(name) not in imported:
            wanted.report(number, "dependency", f"{name} is installed and imported nowhere")
        if not re.search(rf"^\| [^|]*\b{re.escape(name)}\b[^|]*\|", readme.text, re.M):
            wanted.report(number, "dependency", f"README does not say why {name} is there")


# --- limits and error codes -----------------------------------------------------------------------


def check_limits(source: Source) -> None:
    """Each bound says unit or reason: beside it, or in the comment right above."""
    if source.path != f"{PROGRAM}/base/limits.py":
        return
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    comments = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    for node in source.tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        beside = set(range(node.lineno - 1, (node.end_lineno or node.lineno) + 1))
        if not beside & comments:
            source.report(node.lineno, "limit", f"{ast.unparse(node)} has no comment")


def check_errors(sources: dict[str, Source]) -> None:
    """No two error classes share a code, wherever they stand, and each code is in the list for
    operators.
    """
    documented = sources.get("docs/errors.md")
    program = [
        source
        for path, source in sorted(sources.items())
        if source.is_python and path.startswith(f"{PROGRAM}/")
    ]
    errors, holder = error_classes(program), dict[int, str]()
    for source in program:
        path = source.path
        for node, code, line in codes_of(source.nodes):
            if node not in errors:
                continue  # a frame of clients has a code too
            if code in holder:
                source.report(line, "code", f"{node} has code {code}, as {holder[code]} does")
            holder.setdefault(code, f"{node} in {path}")
            if documented is not None and not re.search(rf"\b{code}\b", documented.text):
                source.report(line, "code", f"{code} ({node}) is not in docs/errors.md")


def error_classes(sources: list[Source]) -> set[str]:
    """Names of all classes whose bases lead to Exception."""
    bases = {
        node.name: {ast.unparse(base).split(".")[-1] for base in node.bases}
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.ClassDef)
    }
    found = {"Exception"}
    while more := {name for name, over in bases.items() if over & found} - found:
        found |= more
    return found


def codes_of(nodes: list[ast.AST]) -> Iterator[tuple[str, int, int]]:
    """(class, code, line) of every `code = number` in a class body."""
    for node in nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        for statement in node.body:
            target: ast.expr | None = None
            if isinstance(statement, ast.Assign):
                target = statement.targets[0]
            elif isinstance(statement, ast.AnnAssign):
                target = statement.target
            if not isinstance(target, ast.Name) or target.id != "code":
                continue
            value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, int):
                yield node.name, value.value, statement.lineno


# --- all of it ------------------------------------------------------------------------------------


def violations_of(top: Path) -> list[Violation]:
    gc.disable()  # trees are made and kept: looking for garbage among them took much of the time
    try:
        return _violations_of(top)
    finally:
        gc.enable()


def _violations_of(top: Path) -> list[Violation]:
    sources = sources_read(top)
    python = [source for source in sources if source.is_python]
    readable = [source for source in python if parses(source)]
    unreadable = [source for source in python if source not in readable]
    modules = {source.module for source in readable}
    for source in readable:
        check_floors(source, modules)
        check_imports(source)
        check_wrapped(source)
        check_repeatable(source)
        check_catch_all(source)
        check_patience(source)
        check_package_front(source)
        check_small(source)
        check_slices(source)
        check_sectors(source)
        check_limits(source)
    for source in sources:
        if source not in unreadable:
            check_sizes(source)
            check_names(source)
            check_words(source)
            check_lock(source)
    check_cycles(readable)
    check_owners(readable)
    glossary = top / "docs/glossary.md"
    if glossary.exists():
        check_glossary(readable, glossary.read_text())
        check_identifiers(readable)
    if (top / PROGRAM / "__main__.py").exists():  # in a part of the program much has no use yet
        check_used([source for source in sources if source not in unreadable])
        check_asserts(readable)
    check_dependencies({source.path: source for source in sources if source not in unreadable})
    check_errors({source.path: source for source in sources if source not in unreadable})
    return sorted({violation for source in sources for violation in source.violations})


def parses(source: Source) -> bool:
    try:
        source.tree  # noqa: B018  # parsed now, kept for the rules
    except SyntaxError as error:
        source.report(error.lineno or 1, "syntax", error.msg)
        return False
    return True


def main(arguments: list[str]) -> int:
    top = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    violations = violations_of(top)
    for violation in violations:
        print(violation)
    count = len(violations)
    print(f"tidy: {count} violations" if count else "tidy: nothing to say", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
