"""Every way in which an installed backend can be broken, all installed at once."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import pytest
from fake_site import GOOD_BACKEND, FakeSite, isolated_site

from aot_registry.cli import main

INFO = "from aot_core.protocol import Availability, BackendInfo\n"

# Distribution → (modules' sources, target, expected code, what the reason must say, what the remedy must
# say).
BROKEN: dict[str, tuple[str, str, str, str, str]] = {
    "no-library": (
        "raise ImportError('libnvfuser.so.3: cannot open shared object file: No such file or directory')",
        "backend",
        "missing-library",
        "libnvfuser.so.3",
        "libnvfuser.so.3",
    ),
    "no-library-by-ctypes": (
        "import ctypes\n"
        "try:\n"
        "    ctypes.CDLL('libdoes_not_exist.so.7')\n"
        "except OSError as error:\n"
        "    raise RuntimeError('extension unavailable') from error",
        "backend",
        "missing-library",
        "libdoes_not_exist.so.7",
        "LD_LIBRARY_PATH",
    ),
    "other-abi": (
        "raise ImportError('_C.so: undefined symbol: _ZN3c104impl')",
        "backend",
        "abi-mismatch",
        "_ZN3c104impl",
        "pip install --force-reinstall --no-cache-dir other-abi",
    ),
    "no-attribute": (GOOD_BACKEND, "backends", "missing-attribute", "it has 'backend'", "no-attribute"),
    "no-callable": ("backend = 3", "backend", "not-callable", "an int", "no-callable"),
    "crashing": (
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
        "backend",
        "crashed",
        "SIGSEGV, at ",
        "pip uninstall crashing",
    ),
    "hanging": (
        "import threading\nthreading.Event().wait()",
        "backend",
        "timed-out",
        "within 6 s, at ",
        "aot doctor --timeout 24",
    ),
    "exiting": ("import os\nos._exit(7)", "backend", "exited", "status 7", "pip uninstall exiting"),
    "sys-exiting": ("import sys\nsys.exit(0)", "backend", "import-error", "sys.exit(0)", "sys-exiting"),
    "raising": (
        "raise ValueError('no such device')",
        "backend",
        "import-error",
        "ValueError: no such device (",
        "raising",
    ),
    "no-syntax": ("def backend(:", "backend", "import-error", "no_syntax.py:1", "no-syntax"),
    "no-dependency": (
        "import surely_not_installed_xyz",
        "backend",
        "missing-dependency",
        "'surely_not_installed_xyz'",
        "pip install --force-reinstall no-dependency",
    ),
    "other-torch": (
        "raise ImportError(\"cannot import name 'fuser' from 'torch.jit'\", name='torch.jit')",
        "backend",
        "wrong-torch",
        "cannot import name 'fuser'",
        "other-torch",
    ),
}


def _module(distribution: str) -> str:
    return distribution.replace("-", "_")


def install_everything(site: FakeSite) -> None:
    site.install_good("sound-one", "sound", tags=("cpu",))
    # torch as doctor reads it, from its metadata and its sources.
    site.install("torch", version="2.9.1", modules={"torch/__init__.py": "", "torch/_dynamo/__init__.py": ""})
    site.write(
        {
            "torch/_dynamo/backends/debugging.py": "aot_eager = object()\n"
            "register_backend(name='aot_eager', compiler_fn=aot_eager)\n"
        }
    )
    for distribution, (source, attribute, *_) in BROKEN.items():
        module = _module(distribution)
        site.install(distribution, torch={module: f"{module}:{attribute}"}, modules={f"{module}.py": source})

    for letter in "ab":
        site.install_good(f"rival-{letter}", "contested")
    site.install("shadow", torch={"aot_eager": "shadow:backend"}, modules={"shadow.py": GOOD_BACKEND})
    site.install(
        "needs-new-torch",
        torch={"needs_new_torch": "needs_new_torch:backend"},
        modules={"needs_new_torch.py": GOOD_BACKEND},
        requires=["numpy", "torch>=2.10,<2.16", "torch>=9; extra == 'future'"],
    )
    site.install(
        "third-party", torch={"third_party": "third_party:backend"}, modules={"third_party.py": GOOD_BACKEND}
    )
    site.install(
        "half-gone", torch={"half_gone": "half_gone:backend"}, modules={"half_gone.py": GOOD_BACKEND}
    )
    (site.folder / "half_gone.py").unlink()
    site.install(
        "part-gone",
        torch={"part_gone": "part_gone:backend"},
        modules={"part_gone.py": GOOD_BACKEND, "part_gone_rules.py": ""},
    )
    (site.folder / "part_gone_rules.py").unlink()
    info = site.install(
        "no-metadata", torch={"no_metadata": "no_metadata:backend"}, modules={"no_metadata.py": GOOD_BACKEND}
    )
    (info / "METADATA").unlink()
    info = site.install("no-entry-points", torch={"x": "y:z"})
    (info / "entry_points.txt").write_text("[torch_dynamo_backends]\nthis line has no equals sign\n")

    probes = {
        "probe_raising": "def probe():\n    raise RuntimeError('no driver')\n",
        "probe_invalid": "def probe():\n    return True\n",
        "probe_no": "def probe():\n    return Availability(False, 'no CUDA device', 'Run it where there is "
        "one.')\n",
        "probe_noisy": "import os\ndef probe():\n    os.system('echo noise')\n    print('{\"answer\": 1}')\n"
        "    return Availability(True, 'device 0')\n",
    }
    for name, source in probes.items():
        site.install(
            name.replace("_", "-"),
            torch={name: f"{name}:backend"},
            aot={name: f"{name}:INFO"},
            modules={
                f"{name}.py": f"{INFO}INFO = BackendInfo('{name}', '{name}:backend', '', "
                f"probe='{name}:probe')\n{source}{GOOD_BACKEND}"
            },
        )
    site.install(
        "info-only",
        aot={"info_only": "info_only:INFO"},
        modules={
            "info_only.py": f"{INFO}INFO = BackendInfo('info_only', 'info_only:backend', '')\n{GOOD_BACKEND}"
        },
    )
    site.install(
        "other-target",
        torch={"other_target": "other_target:backend"},
        aot={"other_target": "other_target:INFO"},
        modules={
            "other_target.py": f"{INFO}INFO = BackendInfo('other_target', 'other_target:old', "
            f"'')\n{GOOD_BACKEND}"
        },
    )
    site.install(
        "bad-info",
        torch={"bad_info": "bad_info:backend"},
        aot={"bad_info": "bad_info:INFO"},
        modules={"bad_info.py": f"INFO = 'a string'\n{GOOD_BACKEND}"},
    )
    site.install(
        "newer",
        torch={"newer": "newer:backend"},
        aot={"newer": "newer:INFO"},
        modules={
            "newer.py": f"{INFO}INFO = BackendInfo('newer', 'newer:backend', '', protocol=99)\n{GOOD_BACKEND}"
        },
    )
    site.install(
        "info-torch",
        torch={"info_torch": "info_torch:backend"},
        aot={"info_torch": "info_torch:INFO"},
        modules={
            "info_torch.py": f"import torch\n{INFO}INFO = BackendInfo('info_torch', 'info_torch:backend', "
            f"'')\n{GOOD_BACKEND}"
        },
    )
    for letter in "cd":
        site.install_good(f"over-{letter}", f"over_{letter}", overrides="ts")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``aot doctor --json --timeout 6`` says of all of them in one run, as {distribution: record}."""
    with (
        isolated_site(tmp_path_factory.mktemp("doctor")) as site,
        contextlib.redirect_stdout(io.StringIO()) as out,
    ):
        install_everything(site)
        status = main(["doctor", "--json", "--timeout", "6"])
    assert status == 1
    examination: dict[str, Any] = json.loads(out.getvalue())
    examination["by_distribution"] = {one["distribution"]: one for one in examination["backends"]}
    return examination


def problem(report: dict[str, Any], distribution: str, code: str) -> dict[str, Any]:
    record = report["by_distribution"][distribution]
    found = [one for one in record["problems"] if one["code"] == code]
    assert len(found) == 1, f"expected one {code!r} of {distribution}, got {record}"
    return found[0]


def test_sound_backend_is_usable(report: dict[str, Any]) -> None:
    record = report["by_distribution"]["sound-one"]
    assert (record["status"], record["problems"]) == ("usable", [])


@pytest.mark.parametrize("distribution", BROKEN)
def test_broken_import_is_explained(report: dict[str, Any], distribution: str) -> None:
    *_, code, reason, remedy = BROKEN[distribution]
    found = problem(report, distribution, code)
    assert reason in found["reason"]
    assert remedy in found["remedy"]
    assert report["by_distribution"][distribution]["status"] == "broken"


@pytest.mark.parametrize("distribution", ["crashing", "hanging"])
def test_place_of_crash_or_hang_is_told(report: dict[str, Any], distribution: str) -> None:
    (found,) = [
        one for one in report["by_distribution"][distribution]["problems"] if one["severity"] == "error"
    ]
    assert f"{distribution}.py:2" in found["reason"]


def test_two_distributions_with_one_name(report: dict[str, Any]) -> None:
    for distribution in ("rival-a", "rival-b"):
        found = problem(report, distribution, "duplicate-name")
        assert "rival-a 1.0" in found["reason"] and "rival-b 1.0" in found["reason"]
        assert "pip uninstall rival-a" in found["remedy"] and "pip uninstall rival-b" in found["remedy"]
        assert report["by_distribution"][distribution]["status"] == "broken"


def test_name_that_torch_shadows(report: dict[str, Any]) -> None:
    found = problem(report, "shadow", "shadowed-by-torch")
    assert "torch has a backend 'aot_eager' of its own" in found["reason"]
    assert "get_backend('aot_eager')" in found["remedy"]


def test_wrong_torch(report: dict[str, Any]) -> None:
    found = problem(report, "needs-new-torch", "wrong-torch")
    assert found["reason"] == "needs-new-torch 1.0 requires torch>=2.10,<2.16, and torch 2.9.1 is installed"
    assert 'pip install "torch>=2.10,<2.16"' in found["remedy"]


def test_undescribed_backend_is_usable_with_a_note(report: dict[str, Any]) -> None:
    found = problem(report, "third-party", "missing-metadata")
    assert found["severity"] == "info"
    assert report["by_distribution"]["third-party"]["status"] == "usable"


def test_package_uninstalled_half_way(report: dict[str, Any]) -> None:
    assert "pip uninstall half-gone" in problem(report, "half-gone", "half-uninstalled")["remedy"]
    # It still imports: only RECORD tells.
    found = problem(report, "part-gone", "half-uninstalled")
    assert "part_gone_rules.py" in found["reason"]


def test_broken_metadata(report: dict[str, Any]) -> None:
    assert "METADATA of no_metadata" in problem(report, "no_metadata", "broken-metadata")["reason"]
    (found,) = report["problems"]
    assert "entry_points.txt of no-entry-points" in found["reason"]
    assert "`import torch` fails" in found["reason"]
    assert "pip uninstall no-entry-points" in found["remedy"]
    assert "no_entry_points-1.0.dist-info." in found["remedy"]
    found = problem(report, "bad-info", "broken-metadata")
    assert "a str, expected a BackendInfo" in found["reason"]


def test_probes(report: dict[str, Any]) -> None:
    found = problem(report, "probe-raising", "probe-raised")
    assert "RuntimeError: no driver" in found["reason"]
    assert report["by_distribution"]["probe-raising"]["status"] == "broken"
    assert "returned bool" in problem(report, "probe-invalid", "probe-invalid")["reason"]
    found = problem(report, "probe-no", "unavailable")
    assert (found["reason"], found["remedy"]) == ("no CUDA device", "Run it where there is one.")
    assert report["by_distribution"]["probe-no"]["status"] == "unavailable"
    noisy = report["by_distribution"]["probe-noisy"]
    assert (noisy["status"], noisy["found"]) == ("usable", "device 0")


def test_groups_that_disagree(report: dict[str, Any]) -> None:
    assert "not in torch_dynamo_backends" in problem(report, "info-only", "groups-disagree")["reason"]
    assert "other_target:old" in problem(report, "other-target", "groups-disagree")["reason"]
    assert "protocol 99" in problem(report, "newer", "newer-protocol")["reason"]
    assert problem(report, "info-torch", "metadata-imports-torch")["severity"] == "info"


def test_override_wanted_twice(report: dict[str, Any]) -> None:
    found = problem(report, "over-c", "override-conflict")
    assert "'over_d' of over-d 1.0" in found["reason"] and "pip uninstall over-d" in found["remedy"]


def test_every_error_names_a_remedy(report: dict[str, Any]) -> None:
    errors = [
        one for record in report["backends"] for one in record["problems"] if one["severity"] == "error"
    ]
    assert len(errors) > 20
    assert all(one["remedy"] for one in errors)


def test_missing_torch(site: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    for name, requires in (("declares", ["torch>=2.10"]), ("imports", [])):
        site.install(
            name,
            torch={name: f"{name}:backend"},
            modules={f"{name}.py": f"import torch\n{GOOD_BACKEND}"},
            requires=requires,
        )
    assert main(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["torch"] is None
    for record in report["backends"]:
        codes = [one["code"] for one in record["problems"] if one["severity"] == "error"]
        assert codes == ["torch-missing"]
    assert 'pip install "torch>=2.10"' in report["backends"][0]["problems"][0]["remedy"]


def test_text_output_and_status_0(site: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    site.install_good("sound-one", "sound")
    site.install(
        "absent",
        torch={"absent": "absent:backend"},
        aot={"absent": "absent:INFO"},
        modules={
            "absent.py": f"{INFO}INFO = BackendInfo('absent', 'absent:backend', '', probe='absent:probe')\n"
            "def probe():\n    return Availability(False, 'no [cuda] device', 'Buy one.')\n"
        },
    )
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "torch not installed" in out
    assert "unavailable: absent (absent 1.0) [unavailable]\n  no [cuda] device.\n  → Buy one.\n" in out
    # rich, where it is installed, draws lines between columns.
    rows = [line.replace("│", " ").split() for line in out.splitlines() if "sound-one" in line]
    assert rows == [["sound", "sound-one", "1.0", "usable"]]


def test_nothing_installed(site: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert "No installed distribution declares a backend." in capsys.readouterr().out


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_bad_timeout_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["doctor", f"--timeout={seconds}"])
    assert caught.value.code == 2
    assert "--timeout" in capsys.readouterr().err
