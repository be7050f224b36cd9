"""Starts the tests that need the device, and looks at the device from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest

from macgpu import softmps
from macgpu.softmps import build

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the device runs on Linux")
DEVICE_TESTS = Path(__file__).parent / "device"


def python(
    program: str, *, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program on the device."""
    environment = {**softmps.environment(), **(variables or {})}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_on_the_device(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--nightly"] if request.config.getoption("--nightly") else []
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(DEVICE_TESTS), *options]
    status = softmps.run(command)
    report = capfd.readouterr().out
    with capfd.disabled():
        print("\n" + report.strip().splitlines()[-1])
    assert status == 0, report


def test_missing_operators_fall_back_if_asked_before_the_import() -> None:
    done = python(
        """
        import warnings, torch
        x = torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 4.0]], device="mps", requires_grad=True)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            first, second = x.mode().values, x.mode().values
        first.sum().backward()
        print(first.device, first.tolist(), x.grad.sum().item())
        print([str(w.message).split(" (Triggered")[0] for w in seen if w.category is UserWarning])
        """,
        variables={"PYTORCH_ENABLE_MPS_FALLBACK": "1"},
    )
    values, warned = done.stdout.splitlines()
    assert values == "mps:0 [2.0, 3.0] 2.0"
    assert warned == (
        "[\"The operator 'aten::mode' is not currently supported on the MPS backend and will fall "
        'back to run on the CPU. This may have performance implications."]'
    )


def test_fallback_variable_set_after_the_import_does_nothing() -> None:
    """In a process of its own, because the device reads the variable once."""
    done = python(
        """
        import os, torch
        os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"
        torch.ones(2, 2, device="mps").mode()
        """,
        variables={"PYTORCH_ENABLE_MPS_FALLBACK": "0"},
    )
    assert done.returncode == 1
    assert "NotImplementedError: The operator 'aten::mode' is not currently" in done.stderr


def test_warnings_do_not_tell_where_the_sources_lie() -> None:
    done = python(
        "import torch; torch.ones(2, 2, device='mps').mode()",
        variables={"PYTORCH_ENABLE_MPS_FALLBACK": "1"},
    )
    assert "(Triggered internally at macgpu/softmps/csrc/dispatch.cpp:" in done.stderr
    assert str(build.SOURCES) not in done.stderr


@pytest.mark.parametrize(
    ("high", "low", "error"),
    [
        ("0.5", None, "invalid low watermark ratio 1.4"),  # the default low is above
        ("2.5", None, "invalid high watermark ratio 2.5"),
        ("0.5", "0.4", None),
        ("0.0", None, None),
        (None, "1.9", "invalid low watermark ratio 1.9"),
    ],
)
def test_watermarks(high: str | None, low: str | None, error: str | None) -> None:
    given = {"PYTORCH_MPS_HIGH_WATERMARK_RATIO": high, "PYTORCH_MPS_LOW_WATERMARK_RATIO": low}
    variables = {name: value for name, value in given.items() if value is not None}
    done = python("import torch; torch.ones(2, device='mps'); print('done')", variables=variables)
    if error is None:
        assert done.stdout == "done\n", done.stderr
    else:
        assert f"RuntimeError: {error}" in done.stderr


def test_high_watermark_limits_memory() -> None:
    done = python(
        "import torch; torch.empty(int(0.02 * torch.mps.recommended_max_memory()), device='mps')",
        variables={
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO": "0.01",
            "PYTORCH_MPS_LOW_WATERMARK_RATIO": "0.0",
        },
    )
    assert "RuntimeError: MPS backend out of memory" in done.stderr


def test_a_process_that_was_not_started_for_it_is_left_alone() -> None:
    plain = {key: value for key, value in os.environ.items() if key != softmps.SWITCH}
    program = (
        "import sys, torch, macgpu.softmps as softmps;"
        "loaded = 'macgpu.softmps.build' in sys.modules;"
        "print(torch.backends.mps.is_available(), softmps.is_active(), loaded)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=plain, capture_output=True, text=True, check=True)
    assert done.stdout == "False False False\n"


def test_switch_without_launcher_is_explained() -> None:
    variables = {**os.environ, softmps.SWITCH: "1"}
    variables.pop("LD_PRELOAD", None)
    command = [sys.executable, "-c", "import torch"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert "has to be started with `macgpu softmps run -- COMMAND`" in done.stderr


def test_notebooks_need_no_line_for_it(tmp_path: Path) -> None:
    cell = """import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.arange(4.0))
loader = DataLoader(data, num_workers=1, multiprocessing_context="spawn")
print(torch.backends.mps.get_name(), sum(x.to("mps") for (x,) in loader).item())"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    before, after = tmp_path / "before.ipynb", tmp_path / "after.ipynb"
    nbformat.write(notebook, before)
    command = ["-m", "papermill", "-k", "python3", "--no-progress-bar", str(before), str(after)]
    assert softmps.run(command) == 0
    (output,) = nbformat.read(after, as_version=4).cells[0].outputs
    assert output.text == "Software MPS device (Linux, CPU kernels) 6.0\n"


def test_exit_status_and_commands() -> None:
    assert softmps.run(["python", "-c", "raise SystemExit(3)"]) == 3
    assert softmps.run(["-c", "import torch; torch.ones(1, device='mps')"]) == 0
    with pytest.raises(FileNotFoundError):
        softmps.run(["no-such-command"])


def test_two_processes_compile_at_once(tmp_path: Path) -> None:
    """One compiles, the other waits for it; both get the same, whole files."""
    program = "from macgpu.softmps.build import ensure_built; print(ensure_built().device)"
    variables = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen([sys.executable, "-c", program], env=variables, **pipes) for _ in range(2)
    ]
    results = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], results
    assert results[0][0] == results[1][0]
    assert Path(results[0][0].strip()).stat().st_size > 0
    assert sorted("Compiling" in errors for _, errors in results) == [False, True]
    left = sorted(path.name for path in (tmp_path / "macgpu" / "softmps").iterdir())
    assert left == sorted([Path(results[0][0]).parent.name, "lock"])


def test_elsewhere_than_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not softmps.is_active()
    with pytest.raises(
        softmps.SoftMPSUnavailableError, match="runs on Linux, not on darwin"
    ) as error:
        build.ensure_built()
    assert "\n" not in str(error.value)


def test_without_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(softmps.SoftMPSUnavailableError, match=r"needs g\+\+ to compile itself"):
        build.ensure_built()


def test_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nope")  # root cannot write there either
    with pytest.raises(softmps.SoftMPSUnavailableError, match="cannot write to its cache") as error:
        build.ensure_built()
    assert "/proc/nope/macgpu/softmps" in str(error.value)
    assert "\n" not in str(error.value)


def test_unsupported_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A torch of its own, found as the real one is."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.10.0+cpu'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(
        softmps.SoftMPSUnavailableError, match="supports torch 2.11 to 2.14, not 2.10"
    ):
        build.installed_torch()


def test_workers_are_spawned_as_on_a_mac() -> None:
    done = python("import multiprocessing, torch; print(multiprocessing.get_start_method())")
    assert done.stdout == "spawn\n", done.stderr


def test_code_is_run_with_its_variables_and_its_error_is_the_last_line():
    assert (
        softmps.run_code("import torch; print(torch.ones(2, device='mps').sum().item())") == "2.0"
    )
    use = "print('begun', flush=True)\nimport torch\ntorch.ones(1, device='mps')"
    said = softmps.run_code(use, PYTORCH_MPS_HIGH_WATERMARK_RATIO="0.5").splitlines()
    assert said == ["begun", "RuntimeError: invalid low watermark ratio 1.4"]
