"""`make wheel`: builds the sdist and, from it, the wheel; installs that into a fresh environment and runs it there.

Dependencies come from the environment that runs this, through a .pth file: installing them again would take minutes and
prove nothing of this package. That all of them are declared is checked instead.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "afedpg"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
TRAIN = ["train", "quadratic", "--agents", "2", "--iterations", "5", "--out", "quadratic", "--json"]
PRESET = [
    "train", "swimmer", "--preset", "paper", "--agents", "2", "--iterations", "1", "--steps", "64", "--workers", "1",
    "--evaluate-episodes", "1", "--out", "swimmer", "--json",
]  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        wheel = build(copy(place / "source"), place / "dist")
        check_contents(wheel)
        python = install(wheel, place / "venv")
        check_dependencies(python)
        run(python, place)
    print(f"{wheel.name}: built, installed, runs")


def copy(place: Path) -> Path:
    """As in a fresh clone: an egg-info that was left here would name files that the configuration forgets."""
    place.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place)
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    return place


def build(source: Path, out: Path) -> Path:
    call(sys.executable, "-m", "build", "--outdir", str(out), str(source))
    call(sys.executable, "-m", "twine", "check", "--strict", *(str(path) for path in out.iterdir()))
    [wheel] = out.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """Everything of the package, presets, protocol and py.typed included, but for what measures the source tree."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    outside = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and not {"__pycache__", "bench", "acceptance"} & set(path.relative_to(PACKAGE).parts)
    }
    demand(inside == outside, f"in the wheel or in src, not in both: {sorted(inside ^ outside)}")


def install(wheel: Path, venv: Path) -> Path:
    call(sys.executable, "-m", "venv", "--without-pip", str(venv))
    python = venv / "bin" / "python"
    call(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel))
    packages = call(str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    Path(packages, "borrowed.pth").write_text("\n".join(borrowed or [sysconfig.get_paths()["purelib"]]) + "\n")
    home = call(str(python), "-c", "import afedpg; print(afedpg.__file__)").strip()
    demand(home.startswith(str(venv)), f"not the wheel is imported but {home}")
    return python


def check_dependencies(python: Path) -> None:
    """Whatever the package imports, its metadata asks for: as a dependency or in an extra."""
    code = "import importlib.metadata, json; print(json.dumps(importlib.metadata.requires('afedpg')))"
    declared = {_plain(re.split(r"[\[<>=!~; ]", text)[0]) for text in json.loads(call(str(python), "-c", code))}
    owners = importlib.metadata.packages_distributions()
    for module in sorted(_imported() - sys.stdlib_module_names - {"afedpg"}):
        found = {_plain(owner) for owner in owners.get(module, [])}
        demand(bool(found & declared), f"{module} is imported, but pyproject.toml does not ask for it ({found})")


def _imported() -> set[str]:
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.split(".")[0])
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def run(python: Path, place: Path) -> None:
    """Away from the checkout, by the command the wheel installed."""
    command = str(python.parent / "afedpg")
    version = importlib.metadata.version("afedpg")
    demand(call(command, "--version", cwd=place) == f"afedpg {version}\n", "--version does not name the version")
    demand("example: afedpg" in call(command, "--help", cwd=place), "--help has no example")
    trained = json.loads(call(command, *TRAIN, cwd=place))
    replayed = json.loads(call(command, "replay", "quadratic", "--json", cwd=place))
    demand(replayed["recorded"] == trained["theta_sha256"] and replayed["agrees"], "the replay differs")
    demand(json.loads(call(command, *PRESET, cwd=place))["gradients"] == 2, "the preset did not run to its end")


def call(*command: str, cwd: Path = ROOT) -> str:
    """stdout of a command that must succeed, without this checkout on its path."""
    done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False)
    demand(done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def demand(holds: bool, message: str) -> None:
    if not holds:
        sys.exit(f"wheel: {message}")


if __name__ == "__main__":
    main()
