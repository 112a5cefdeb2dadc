"""Everything that this repository does with itself, as nox sessions.

python -m pip install nox && nox              lint, types, imports, api, docs, tests, template, integration
python -m pip install nox && nox -s demo      the main job: backends compared with eager on real data
nox -s "tests(aot-core)" -- -k dropout        one package's tests, with arguments for pytest
nox -s browser                                HTML pages in a headless Chromium: it must be installed
nox -s xla                                    aot-xla's tests on torch_xla: Python 3.12, never run by default
nox -s nvfuser                                aot-partition's tests of nvFuser on nvFuser: likewise, and without a GPU
nox --list                                    all sessions

A session that runs our code installs the wheels that `build` made, by path: what is tested is what users
get. Every install is held to one line of torch by a file in ``constraints/``.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import nox
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

nox.needs_version = ">=2025.10.14"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "imports", "api", "docs", "tests", "template", "integration"]

ROOT = Path(__file__).parent
DEFAULT_LINE = "2.13"
LINES = sorted(path.stem.removeprefix("torch-") for path in ROOT.glob("constraints/torch-*.txt"))

# A change of one of these makes every package worth testing again.
SHARED_FILES = ("noxfile.py", "pyproject.toml", "constraints/", ".github/workflows/ci.yml")


@dataclasses.dataclass(frozen=True)
class Package:
    """A folder of ``packages/``, as its ``pyproject.toml`` describes it."""

    name: str
    folder: Path

    @functools.cached_property
    def pyproject(self) -> dict:
        return nox.project.load_toml(self.folder / "pyproject.toml")

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")

    def runtime(self, extras: Iterable[str] = ()) -> list[Requirement]:
        """Return what it needs at run time, with some of its extras."""
        project = self.pyproject["project"]
        optional = project.get("optional-dependencies", {})
        texts = [*project.get("dependencies", []), *(text for extra in extras for text in optional[extra])]
        return [Requirement(text) for text in texts]

    def test(self) -> list[Requirement]:
        """Return what its tests need besides."""
        return [Requirement(text) for text in nox.project.dependency_groups(self.pyproject, "test")]

    @property
    def wheel(self) -> Path:
        (wheel,) = (self.folder / "dist").glob("*.whl")
        return wheel

    def fingerprint(self) -> str:
        """Return a hash of all files that a build could read: none of the caches that tools leave there."""
        digest = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            relative = path.relative_to(self.folder)
            made = any(part in ("dist", "__pycache__") or part.startswith(".") for part in relative.parts)
            if path.is_file() and not made:
                digest.update(f"{relative.as_posix()}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
        return digest.hexdigest()


PACKAGES = {
    path.parent.name: Package(path.parent.name, path.parent)
    for path in sorted(ROOT.glob("packages/*/pyproject.toml"))
}


def siblings(requirements: Iterable[Requirement]) -> dict[str, set[str]]:
    """Return the packages of this repository that requirements lead to, each with the extras asked for."""
    found: dict[str, set[str]] = {}
    queue = list(requirements)
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if name in PACKAGES and not (name in found and requirement.extras <= found[name]):
            found.setdefault(name, set()).update(requirement.extras)
            queue += PACKAGES[name].runtime(requirement.extras)
    return found


def foreign(requirements: Iterable[Requirement]) -> list[str]:
    """Return the requirements that are not packages of this repository."""
    others = [each for each in requirements if canonicalize_name(each.name) not in PACKAGES]
    for each in others:
        # Whoever owns this name in an index is not us.
        if each.name.startswith("aot-"):
            raise ValueError(f"{each} is required, but there is no folder packages/{each.name}")
    return list(dict.fromkeys(map(str, others)))


def tools(group: str) -> tuple[str, ...]:
    """Return a dependency group of the root ``pyproject.toml``."""
    return nox.project.dependency_groups(nox.project.load_toml(ROOT / "pyproject.toml"), group)


def chosen(session: nox.Session) -> list[Package]:
    """Return the packages named on the command line, or all."""
    unknown = [name for name in session.posargs if name not in PACKAGES]
    if unknown:
        session.error(f"No package named {', '.join(unknown)}. There are: {', '.join(PACKAGES)}.")
    return [PACKAGES[name] for name in session.posargs or PACKAGES]


def install(session: nox.Session, *arguments: str, line: str = DEFAULT_LINE) -> None:
    """Install with pip, held to a line of torch."""
    # Byte-compiling all of torch takes longer than unpacking it. Python compiles what is imported, once.
    session.env["PYTHONDONTWRITEBYTECODE"] = None
    session.env["PYTHONPATH"] = None
    session.install("--no-compile", "-c", f"constraints/torch-{line}.txt", *arguments)


def install_wheels(
    session: nox.Session, requirements: Iterable[Requirement], *, line: str = DEFAULT_LINE
) -> None:
    """Install requirements; those that are packages of ours from their built wheels."""
    requirements = list(requirements)
    extras = siblings(requirements)
    wheels = {name: str(PACKAGES[name].wheel) for name in extras}
    # pip would keep an installed wheel of the same version, however old its contents.
    install(session, "--no-deps", "--force-reinstall", *wheels.values(), line=line)
    # Given by path, a package is never looked up in an index, whoever else requires it.
    ours = [
        f"{wheels[name]}[{','.join(wanted)}]" if wanted else wheels[name] for name, wanted in extras.items()
    ]
    install(session, *ours, *foreign(requirements), line=line)


def install_on_newest_torch(session: nox.Session, requirements: Iterable[Requirement]) -> None:
    """Install like `install_wheels`, with a torch that may be newer than our wheels allow."""
    requirements = list(requirements)
    names = siblings(requirements)
    for name, extras in names.items():
        requirements += [each for each in PACKAGES[name].runtime(extras) if each.name != "torch"]
    wheels = (str(PACKAGES[name].wheel) for name in names)
    install(session, "--upgrade", "torch", *foreign(requirements), line="newest")
    install(session, "--no-deps", "--force-reinstall", *wheels, line="newest")


def run_tests(
    session: nox.Session, package: Package, line: str, marker: str = "not sweep and not gpu"
) -> None:
    """Run a package's tests against its wheel, in an environment that holds only what it declares."""
    requirements = [Requirement(package.name), *package.test()]
    if line == "newest":
        install_on_newest_torch(session, requirements)
    else:
        install_wheels(session, requirements, line=line)
    run_pytest(session, package, marker)


def run_pytest(session: nox.Session, package: Package, marker: str, folder: str = "tests") -> None:
    """Run a package's tests, or a folder of them, against what is installed."""
    # From here no source tree can be imported by accident.
    session.chdir(session.create_tmp())
    session.env.setdefault("OMP_NUM_THREADS", "1")
    origin = f"import {package.module} as m; assert 'site-packages' in m.__file__, m.__file__"
    session.run("python", "-c", origin)
    config = ("-c", str(package.folder / "pyproject.toml"), "--rootdir", str(package.folder))
    # 5 is "no tests collected": not every package has a sweep.
    success = [0] if marker.startswith("not ") else [0, 5]
    tests = str(package.folder / folder)
    session.run("pytest", *config, "-m", marker, *session.posargs, tests, success_codes=success)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff."""
    install(session, *tools("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy, strictly. `-- aot-core` checks one package."""
    packages = chosen(session)
    requirements = [each for package in PACKAGES.values() for each in (*package.runtime(), *package.test())]
    install(session, *tools("types"), *foreign(requirements))
    session.env["MYPYPATH"] = os.pathsep.join(str(package.folder / "src") for package in PACKAGES.values())
    session.run("mypy", *(f"--package={package.module}" for package in packages))


@nox.session(requires=["build"])
def imports(session: nox.Session) -> None:
    """Check who imports whom, and the other contracts of tests/architecture. Needs no torch."""
    wheels = (str(package.wheel) for package in PACKAGES.values())
    install(session, *tools("imports"))
    install(session, "--no-deps", "--force-reinstall", *wheels)
    session.run("lint-imports")
    session.run("pytest", "tests/architecture", *session.posargs)


@nox.session
def api(session: nox.Session) -> None:
    """Compare each package's public names with its last release: a break is undone, or waived with a reason."""
    install(session, *tools("api"))
    session.run("pytest", "tests/tools/test_api_gate.py")
    session.run("python", "tools/api_gate.py", *(str(package.folder) for package in chosen(session)))


@nox.session(requires=["build"])
def docs(session: nox.Session) -> None:
    """Build the documentation; warnings are errors."""
    install_wheels(session, map(Requirement, PACKAGES))
    install(session, "-r", "docs/requirements.txt")
    session.run("sphinx-build", "-E", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")


@nox.session(requires=["build"])
def capabilities(session: nox.Session) -> None:
    """Write docs/reference/capabilities.json anew; `-- --check` compares. Ten minutes: never run by default."""
    install_wheels(session, map(Requirement, PACKAGES))
    session.env.setdefault("OMP_NUM_THREADS", "1")
    session.run("python", "tools/capabilities.py", *session.posargs)


@nox.session(requires=["build"])
@nox.parametrize("package", [nox.param(each, id=each.name) for each in PACKAGES.values()])
def tests(session: nox.Session, package: Package) -> None:
    """Run one package's tests against its built wheel, on the default line of torch."""
    run_tests(session, package, DEFAULT_LINE)


@nox.session(requires=["build"])
def template(session: nox.Session) -> None:
    """Render packages/_template as a package of this repository, and hold it to what the others are held to."""
    with tempfile.TemporaryDirectory(prefix="aot-template-") as folder:
        package = render_template(session, Path(folder).resolve() / "repository")
        build_package(session, package)
        install_wheels(session, [*package.runtime(), *package.test()])
        install(session, "--no-deps", "--force-reinstall", str(package.wheel))
        run_pytest(session, package, "not sweep and not gpu")

        session.chdir(ROOT)
        checkers = [*tools("lint"), *tools("types"), *tools("imports")]
        install_wheels(session, map(Requirement, ["aot-registry", *checkers]))
        listed = json.loads(session.run("aot", "list", "--json", silent=True))
        if not any((each["name"], each["distribution"]) == ("aot_example", package.name) for each in listed):
            session.error(f"`aot list` does not know aot_example: {listed}")

        session.chdir(package.folder.parents[1])
        session.run("ruff", "check", str(package.folder))
        session.run("ruff", "format", "--check", str(package.folder))
        session.env["MYPYPATH"] = str(package.folder / "src")
        session.run("mypy", "--strict", f"--package={package.module}")
        # What is said of a package elsewhere, in docs/ say, its author writes.
        its_own = "(aot-example or aot_example) and not test_reference_pages"
        session.run(
            "pytest", "-k", its_own, "tests/architecture", "tests/integration/test_documentation_code.py"
        )
        session.chdir(ROOT)


def render_template(session: nox.Session, repository: Path) -> Package:
    """Make a copy of this repository, of no more than the checks of one package read, and render the template in it."""
    for folder in ("tests/architecture", "tests/integration", "packages/aot-core"):
        shutil.copytree(ROOT / folder, repository / folder, ignore=shutil.ignore_patterns("dist", ".*"))
    for file in ("LICENSE", "README.md", "CONTRIBUTING.md", "pyproject.toml"):
        shutil.copy(ROOT / file, repository / file)
    package = Package("aot-example", repository / "packages" / "aot-example")
    install(session, *tools("template"), *tools("build"))
    answers = (
        "--defaults",
        "--data",
        f"package={package.name}",
        "--data",
        "summary=Runs graphs by eager's kernels",
    )
    session.run("copier", "copy", "--quiet", *answers, "packages/_template", str(package.folder))
    return package


@nox.session(requires=["build"])
def integration(session: nox.Session) -> None:
    """Run all packages together: real models, two processes, and the code in the documentation."""
    install_wheels(session, map(Requirement, [*PACKAGES, *tools("integration")]))
    session.env.setdefault("OMP_NUM_THREADS", "1")
    session.run("pytest", "tests/integration", *session.posargs)


@nox.session(requires=["build"])
def demo(session: nox.Session) -> None:
    """Run the main job: train on real data under eager and every usable backend, and compare."""
    install_wheels(session, map(Requirement, ["aot-all[bench]", *PACKAGES]))
    session.run("aot", "bench", "digits-conv", "text-gpt", *session.posargs)


@nox.session(requires=["build"])
def browser(session: nox.Session) -> None:
    """Look at the HTML pages in a headless Chromium: `chromium` on the path, or $AOT_BROWSER. Never run by default."""
    install_wheels(session, map(Requirement, ["aot-all[bench,html]", *PACKAGES, *tools("browser")]))
    session.env.setdefault("OMP_NUM_THREADS", "1")
    session.run("pytest", "tests/browser", *session.posargs)


@nox.session(python="3.12", requires=["build"])
def xla(session: nox.Session) -> None:
    """Run aot-xla on torch_xla, with its CPU device. Fetches gigabytes."""
    package = PACKAGES["aot-xla"]
    groups = nox.project.dependency_groups(package.pyproject, "test", "xla")
    install_wheels(session, map(Requirement, [f"{package.name}[xla]", *groups]), line="2.9")
    session.env["PJRT_DEVICE"] = "CPU"
    run_pytest(session, package, "not sweep and not gpu")


@nox.session(python="3.12", requires=["build"])
def nvfuser(session: nox.Session) -> None:
    """Run the executor `nvfuser` on nvFuser itself, which builds fusions without a GPU. Fetches gigabytes."""
    package = PACKAGES["aot-partition"]
    tests = nox.project.dependency_groups(package.pyproject, "test")
    install_wheels(
        session, map(Requirement, [f"{package.name}[nvfuser-cu128-torch210]", *tests]), line="2.10"
    )
    run_pytest(session, package, "not sweep and not gpu", folder="tests/nvfuser")


@nox.session
def build(session: nox.Session) -> None:
    """Build sdist and, from it, wheel of every package whose sources changed, into its dist/."""
    install(session, *tools("build"))
    for package in PACKAGES.values():
        build_package(session, package)


def build_package(session: nox.Session, package: Package) -> None:
    """Build sdist and, from it, wheel of a package into its dist/, if its sources changed."""
    dist = package.folder / "dist"
    stamp = dist / ".sources"
    fingerprint = package.fingerprint()
    if stamp.exists() and stamp.read_text() == fingerprint:
        session.log(f"{package.name}: unchanged, {package.wheel.name} stays")
        return
    for old in dist.glob("*"):
        old.unlink()
    command = ("python", "-m", "build", "--no-isolation", "--outdir", str(dist), str(package.folder))
    session.run(*command, silent=True)
    with session.chdir(package.folder):
        version = session.run("hatchling", "version", silent=True).strip()
    if not package.wheel.name.startswith(f"{package.module}-{version}-"):
        session.error(f"{package.name}: hatchling says {version}, the wheel is {package.wheel.name}")
    stamp.write_text(fingerprint)
    session.log(f"{package.name}: built {package.wheel.name}")


@nox.session(venv_backend="none")
def changed(session: nox.Session) -> None:
    """Print as JSON the packages touched since a git ref (`-- origin/main`), dependants included."""
    ref = session.posargs[0] if session.posargs else "origin/main"
    touched = changed_files(ref)
    if touched is None:
        session.warn(f"git knows no commit {ref!r}: taking every package as changed")
        hit = set(PACKAGES)
    elif any(file.startswith(SHARED_FILES) for file in touched):
        hit = set(PACKAGES)
    else:
        hit = {file.split("/")[1] for file in touched if file.startswith("packages/")} & set(PACKAGES)
    dependants = {name for name in PACKAGES if hit & set(siblings([Requirement(name)]))}
    print(json.dumps(sorted(dependants)))


def changed_files(ref: str) -> list[str] | None:
    """Return the files that differ from where this branch left ``ref``; None if there is no such commit."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()

    try:
        base = git("merge-base", "HEAD", ref)
    except subprocess.CalledProcessError:
        return None
    listed = git("diff", "--name-only", base) + "\n" + git("ls-files", "--others", "--exclude-standard")
    return [file for file in listed.splitlines() if file]


def add_opt_in_sessions() -> None:
    """Add ``tests-LINE`` for each line of torch that has a constraints file, ``sweep`` and ``gpu``."""

    def add(name: str, line: str, summary: str, **how: str) -> None:
        def session(session: nox.Session, package: Package) -> None:
            run_tests(session, package, line, **how)

        session.__doc__ = summary
        fitting = [nox.param(each, id=each.name) for each in PACKAGES.values() if supports(each, line)]
        nox.session(name=name, requires=["build"])(nox.parametrize("package", fitting)(session))

    for line in LINES:
        if line != DEFAULT_LINE:
            add(f"tests-{line}", line, f"Run one package's tests on torch {line}.")
    add("sweep", DEFAULT_LINE, "Run one package's long searches.", marker="sweep")
    add("gpu", DEFAULT_LINE, "Run one package's tests that need a CUDA device.", marker="gpu")


def supports(package: Package, line: str) -> bool:
    """Tell whether the requirements of a package and its siblings on torch allow a line."""
    reached = [PACKAGES[name] for name in siblings([Requirement(package.name)])]
    wanted = [each for one in reached for each in one.runtime() if each.name == "torch"]
    return line == "newest" or all(each.specifier.contains(line) for each in wanted)


add_opt_in_sessions()
