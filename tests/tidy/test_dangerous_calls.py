"""What no line of the source may do: run code from outside, compare secrets, drop a check of TLS.

These are the project's own rules beside bandit's. Every exception is named here with its reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tidelog"

# Nobody reaches these from the wire or the web: they run on the machine of who calls them.
_NOT_SERVED = ("cli/", "spark/", "pipelines/", "testing/", "arrow/", "supervisor/")

_CALLS = re.compile(
    r"(eval|exec|compile|__import__|(pickle|marshal|shelve|dill|pty|runpy|subprocess)\..+"
    r"|yaml\.(load|unsafe_load|full_load|load_all)"
    r"|importlib\..+|import_module|(importlib\.)?reload"
    r"|os\.(system|popen|exec\w+|spawn\w+|posix_spawn\w*|fork|startfile)"
    r"|ctypes\.(CDLL|cdll\..+)|tempfile\.mktemp|asyncio\.create_subprocess_\w+)"
)
# What these are called with stands in the source, in a table or in place.
ALLOWED_CALLS = {
    ("protocol/schema_source.py", "exec"): "codecs, of the declarations of messages",
    ("protocol/schema_source.py", "compile"): "codecs, of the declarations of messages",
    ("protocol/apis.py", "import_module"): "messages, by the table of APIs",
    ("server/routes.py", "import_module"): "handlers, by the table of APIs",
    ("coordinators/groups/coordinator.py", "import_module"): "one module, by its name",
    ("coordinators/transactions/coordinator.py", "import_module"): "one module, by its name",
    ("server/document.py", "import_module"): "handlers, for the page of APIs; a command",
    ("host/disk.py", "ctypes.CDLL"): "syncfs, of the C library",
    ("host/page_cache.py", "ctypes.CDLL"): "statx, of the C library",
    ("host/parent.py", "ctypes.CDLL"): "prctl, of the C library",
}

_SECRET = re.compile(r"(password|passwd|secret|proof|signature|stored_key|server_key|hmac)$")


@cache
def modules() -> dict[str, list[ast.AST]]:
    """The nodes of every module."""
    return {
        path.relative_to(SOURCE).as_posix(): list(ast.walk(ast.parse(path.read_text())))
        for path in sorted(SOURCE.rglob("*.py"))
    }


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def found(check: Callable[[ast.AST], str | None], *, served_only: bool) -> list[tuple[str, str]]:
    return [
        (name, said)
        for name, nodes in modules().items()
        if not (served_only and name.startswith(_NOT_SERVED))
        for node in nodes
        if (said := check(node)) is not None
    ]


def test_nothing_from_the_wire_or_the_web_can_become_code() -> None:
    def call(node: ast.AST) -> str | None:
        if isinstance(node, ast.Call) and _CALLS.fullmatch(dotted(node.func)):
            return dotted(node.func)
        return None

    calls = found(call, served_only=True)
    assert set(calls) == set(ALLOWED_CALLS)
    assert len(modules()) > 500


def test_no_module_is_imported_that_runs_what_it_reads() -> None:
    def imported(node: ast.AST) -> str | None:
        names = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        bad = {"pickle", "marshal", "shelve", "subprocess", "pty", "runpy", "code", "telnetlib"}
        return next((name for name in names if name.split(".")[0] in bad), None)

    assert found(imported, served_only=True) == []


def test_no_shell_is_started() -> None:
    def shell(node: ast.AST) -> str | None:
        if isinstance(node, ast.keyword) and node.arg == "shell":
            return "shell="
        if isinstance(node, ast.Call) and dotted(node.func) in ("os.system", "os.popen"):
            return dotted(node.func)
        return None

    assert found(shell, served_only=False) == []


def test_secrets_are_compared_in_constant_time() -> None:
    def compared(node: ast.AST) -> str | None:
        if not isinstance(node, ast.Compare):
            return None
        if not any(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops):
            return None
        names = [dotted(each).rpartition(".")[2] for each in (node.left, *node.comparators)]
        return next((name for name in names if _SECRET.search(name)), None)

    # Whether a password was changed since: both sides are what the broker keeps.
    own = {("server/handlers/sasl.py", "password"), ("server/handlers/sasl.py", "stored_key")}
    assert set(found(compared, served_only=False)) <= own


def test_tls_is_checked_wherever_it_is_spoken() -> None:
    """The one way to switch the check of names off is Kafka's setting for it."""

    def dropped(node: ast.AST) -> str | None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                name = dotted(target).rpartition(".")[2]
                value = node.value
                if name == "check_hostname" and isinstance(value, ast.Constant) and not value.value:
                    return "check_hostname"
                if name == "verify_mode" and dotted(value).endswith("CERT_NONE"):
                    return "verify_mode"
        if isinstance(node, ast.Call) and "create_unverified" in dotted(node.func):
            return dotted(node.func)
        return None

    # The doctor shows a certificate that nobody trusts, and sends nothing.
    doctor = "cli/doctor_network.py"
    assert found(dropped, served_only=False) == [
        (doctor, "check_hostname"),
        (doctor, "verify_mode"),
    ]


def test_no_log_line_is_given_a_secret() -> None:
    def logged(node: ast.AST) -> str | None:
        if not isinstance(node, ast.Call) or not re.fullmatch(
            r"(_log|logger|logging)\.\w+|say|print|audit", dotted(node.func)
        ):
            return None
        names = (dotted(each).rpartition(".")[2] for arg in node.args for each in ast.walk(arg))
        return next((name for name in names if _SECRET.search(name)), None)

    assert found(logged, served_only=False) == []


def test_chance_comes_from_the_system_where_it_protects() -> None:
    def imported(node: ast.AST) -> str | None:
        if isinstance(node, ast.Import):
            return "random" if any(each.name == "random" for each in node.names) else None
        return "random" if isinstance(node, ast.ImportFrom) and node.module == "random" else None

    # It draws from SystemRandom, and all others from it.
    assert found(imported, served_only=True) == [("host/random.py", "random")]
