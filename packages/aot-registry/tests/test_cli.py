from __future__ import annotations

import json
import subprocess
import sys

import pytest
from fake_site import FakeSite

from aot_registry import cli
from aot_registry.cli import COMMANDS, main
from aot_registry.errors import UnknownBackendError


def test_list(site: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    site.install_good("fake-b", "beta", tags=("debug",))
    site.install_good("fake-a", "alpha", tags=("cpu", "training"))
    site.install("fake-c", torch={"gamma": "gone:backend"}, aot={"gamma": "gone:INFO"})
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert "beta" not in out
    assert "1 debug backend not shown: aot list --all" in out
    (alpha,) = [line for line in out.splitlines() if "fake-a 1.0" in line]
    assert "cpu, training" in alpha and "The alpha of fake-a" in alpha
    (gamma,) = [line for line in out.splitlines() if "fake-c 1.0" in line]
    assert "description can't be read" in gamma

    assert main(["list", "--all"]) == 0
    out = capsys.readouterr().out
    assert "fake-b 1.0" in out and "not shown" not in out


def test_list_json(site: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    site.install_good("fake-a", "alpha", tags=("cpu",), overrides="aot_eager")
    for letter in "bc":
        site.install(f"fake-{letter}", torch={"twice": f"fake_{letter}:backend"})
    info = site.install("malformed", torch={"x": "y:z"})
    (info / "entry_points.txt").write_text("[torch_dynamo_backends]\nno equals sign\n")
    assert main(["list", "--json"]) == 0
    captured = capsys.readouterr()
    records = json.loads(captured.out)
    assert records[0] == {
        "name": "alpha",
        "distribution": "fake-a",
        "version": "1.0",
        "target": "fake_a_module:backend",
        "summary": "The alpha of fake-a",
        "tags": ["cpu"],
        "overrides": "aot_eager",
        "problem": None,
    }
    assert sorted(record["distribution"] for record in records if record["name"] == "twice") == [
        "fake-b",
        "fake-c",
    ]
    assert "entry_points.txt of malformed can't be read" in captured.err


def test_nothing_installed(site: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert capsys.readouterr().out == "No backends.\n"


def test_errors_of_use(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: object) -> int:
        raise UnknownBackendError("No backend is called 'x'.")

    monkeypatch.setattr("aot_registry.list_command.run", fail)
    assert main(["list"]) == 2
    assert capsys.readouterr().err == "aot: No backend is called 'x'. See errors/unknown-backend\n"


def test_interrupt(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("aot_registry.list_command.run", interrupt)
    assert main(["list"]) == 130


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell with pipes")
def test_closed_pipe_is_no_error() -> None:
    program = "from aot_registry.cli import main; import sys; sys.exit(main(['list', '--all']))"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert all(f"    {name}" in out for name in COMMANDS)


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["lst"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"aot-registry {cli.__version__}\n"
