"""A checkpoint of an mps machine loads where there is no mps, and goes on there."""

import shutil
import subprocess
import sys

import pytest
import torch

from macgpu import data, long_run, softmps
from macgpu.checkpoints import load_model, read
from macgpu.long_run import Settings, make_model, read_log, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the device runs on Linux")

SETTINGS = Settings(steps=4, every=2, batch_size=8)
START = """
import sys, torch
from pathlib import Path
from macgpu import data, long_run
folder = Path(sys.argv[1])
small = tuple(part.first(40) for part in data.fashion_subset())

def go(folder, limit=None):
    settings = long_run.Settings(steps=4, every=2, batch_size=8)
    long_run.run(folder, settings, torch.device("mps"), limit, small)

"""
UP_TO_THE_FIRST_CHECK = """
go(folder, 0)
best = torch.load(folder / "best.pt", weights_only=True)
print(best["parts"]["model"]["0.weight"].device)
"""
STOPPED_AND_LEFT_ALONE = """
go(folder / "stopped", 0)
go(folder / "stopped")
go(folder / "alone")
print(long_run.differences(folder / "stopped", folder / "alone"))
"""


def on_mps(program, folder):
    """The lines that a program printed on the device."""
    done = subprocess.run(
        [sys.executable, "-c", START + program, str(folder)],
        env=softmps.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of a run that was stopped at its first check, on mps."""
    folder = tmp_path_factory.mktemp("on-mps")
    lines = on_mps(UP_TO_THE_FIRST_CHECK, folder)
    assert lines[-1] == "mps:0", "its tensors were not of mps"
    return folder


def test_torch_alone_cannot_place_its_tensors(written):
    with pytest.raises(RuntimeError, match="mps"):
        torch.load(written / long_run.BEST, weights_only=True)


def test_the_best_model_loads_on_the_cpu(written):
    model = make_model()
    assert load_model(written / long_run.BEST, model)["best_step"] == 2
    weights = read(written / "step-000000002.pt")["parts"]["model"]
    torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0)
    assert next(model.parameters()).device.type == "cpu"


def test_the_device_s_random_numbers_are_kept(written):
    content = read(written / "step-000000002.pt")["random"]
    assert set(content) == {"python", "numpy", "cpu", "mps"}
    assert content["mps"].dtype == torch.uint8


def test_nothing_is_logged_as_measured(written):
    (line,) = read_log(written)
    for name in ("seconds", "images_per_s", "process_bytes", "device_bytes"):
        assert line[name] is None, name


def test_the_run_goes_on_on_the_cpu(written, tmp_path):
    folder = shutil.copytree(written, tmp_path / "copy")
    small = tuple(part.first(40) for part in data.fashion_subset())
    lines = []
    cpu = torch.device("cpu")
    assert run(folder, SETTINGS, cpu, pictures=small, report=lines.append) == "finished"
    assert [line["step"] for line in read_log(folder)] == [2, 4]
    assert lines[0].startswith("step-000000002.pt was written on mps: on cpu, random numbers")
    assert lines[1].startswith("step 4: loss ")


def test_a_run_of_the_cpu_goes_on_on_mps_and_says_what_differs(tmp_path):
    small = tuple(part.first(40) for part in data.fashion_subset())
    silent = {"pictures": small, "report": lambda _line: None}
    run(tmp_path, SETTINGS, torch.device("cpu"), time_limit_s=0, **silent)
    lines = on_mps("go(folder)", tmp_path)
    assert lines[0].startswith("step-000000002.pt was written on cpu: on mps, random numbers")
    assert [line["step"] for line in read_log(tmp_path)] == [2, 4]


def test_a_run_that_was_stopped_on_mps_ends_as_one_left_alone(tmp_path):
    """Dropout draws from the device's own generator there."""
    assert on_mps(STOPPED_AND_LEFT_ALONE, tmp_path)[-1] == "[]"
