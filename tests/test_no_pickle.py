"""No module can unpickle or evaluate what a file holds, so a file from a stranger cannot run code.

The source is read, not run: a path that no test takes counts as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(path for room in ("src", "scripts", "benchmarks") for path in (ROOT / room).rglob("*.py"))

UNPICKLING = {
    *("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "jsonpickle", "joblib", "shelve", "marshal"),
    *("torch.load", "torch.hub", "torch.package", "torch.jit.load", "torch.serialization"),
    *("pandas.read_pickle", "numpy.lib.npyio", "pyarrow.deserialize", "pyarrow.serialization"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.full_load_all"),
    *("yaml.unsafe_load", "yaml.unsafe_load_all"),
}
EVALUATING = {"eval", "exec", "compile", "__import__"}


def unsafe(source: str) -> list[str]:
    """What in this source unpickles or evaluates, as `line: name`."""
    tree = ast.parse(source)
    names = imported(tree)
    return [f"{line}: {name}" for line, name in sorted(set(found(tree, names)))]


def imported(tree: ast.Module) -> dict[str, str]:
    """What each name of the module stands for, by its full dotted path, imports within functions too."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                first = one.name.partition(".")[0]
                names[one.asname or first] = one.name if one.asname else first
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for one in node.names:
                names[one.asname or one.name] = f"{node.module}.{one.name}"
    return names


def found(tree: ast.Module, names: dict[str, str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            paths = [start + one.name for one in node.names]
        elif isinstance(node, ast.Name | ast.Attribute):
            paths = [dotted(node, names)]
            if isinstance(node, ast.Name) and node.id in EVALUATING and node.id not in names:
                yield line, node.id
        elif isinstance(node, ast.Call):
            yield from of_a_call(node, names)
            continue
        else:
            continue
        for path in paths:
            if any(path == bad or path.startswith(f"{bad}.") for bad in UNPICKLING):
                yield line, path
            if path.removeprefix("builtins.") in EVALUATING and path.startswith("builtins."):
                yield line, path


def of_a_call(call: ast.Call, names: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Leave to unpickle that is given by an argument, and modules that are named by a text."""
    called = dotted(call.func, names)
    for argument in call.keywords:
        hidden = argument.arg is None and called == "numpy.load"
        if hidden or (argument.arg == "allow_pickle" and not is_false(argument.value)):
            yield call.lineno, f"{called} with allow_pickle"
    if called == "numpy.load" and len(call.args) > 2 and not is_false(call.args[2]):
        yield call.lineno, f"{called} with allow_pickle"
    if called.rpartition(".")[2] == "read_pickle":
        yield call.lineno, called
    if called in ("importlib.import_module", "import_module"):
        for argument in call.args[:1]:
            if isinstance(argument, ast.Constant) and str(argument.value).partition(".")[0] in UNPICKLING:
                yield call.lineno, f"{called} of {argument.value}"


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    """`np.lib.npyio` as numpy.lib.npyio; what does not start from a name keeps only its end."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, names)}.{node.attr}"
    return ""


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def test_no_module_unpickles_or_evaluates() -> None:
    assert len(MODULES) > 150
    read = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in MODULES}
    assert "src/evenhand/paper/claims.py" in read
    assert {path: lines for path, source in read.items() if (lines := unsafe(source))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, pickle as p",
        "from pickle import load",
        "import _pickle",
        "import cPickle",
        "import cloudpickle",
        "import dill",
        "from joblib import load",
        "import joblib.numpy_pickle",
        "import shelve",
        "import marshal",
        "def f():\n    import pickle",
        "import torch\ntorch.load(path)",
        "import torch as t\nread = t.load",
        "from torch import load as read",
        "from torch.serialization import load",
        "import torch\ntorch.load(path, weights_only=True)",
        "import torch\ntorch.jit.load(path)",
        "import torch\ntorch.hub.load('a/b', 'c')",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import numpy as np\nnp.load(path, allow_pickle=trusted)",
        "import numpy as np\nnp.load(path, None, True)",
        "import numpy as np\nnp.load(path, **options)",
        "from numpy import load\nload(path, allow_pickle=True)",
        "from numpy.lib.format import read_array\nread_array(file, allow_pickle=True)",
        "import pandas as pd\npd.read_pickle(path)",
        "from pandas import read_pickle",
        "frames.read_pickle(path)",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
        "from yaml import unsafe_load",
        "eval(text)",
        "exec(text)",
        "run = eval",
        "import builtins\nbuiltins.exec(text)",
        "code = compile(text, 'name', 'exec')",
        "__import__('pickle')",
        "from importlib import import_module\nimport_module('pickle')",
        "import importlib\nimportlib.import_module('joblib.numpy_pickle')",
    ],
)
def test_an_example_of_each_is_caught(source: str) -> None:
    assert unsafe(source)


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\nnp.load(path)",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "import numpy as np\nnp.load(path, None, False)",
        "import json\njson.load(file)",
        "import yaml\nyaml.safe_load(text)",
        "from safetensors.torch import load_file\nload_file(path)",
        "model.eval()",
        "import re\nre.compile(pattern)",
        "from evenhand import load\nload(folder)",
        "from . import pickled",
    ],
)
def test_what_is_harmless_passes(source: str) -> None:
    assert not unsafe(source)
