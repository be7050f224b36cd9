"""Every chapter takes its mps path, on the software device: what a Mac's reader would see fail."""

import sys

import pytest

from macgpu import softmps
from macgpu.publish.execute import executed_run
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the device runs on Linux")

CHAPTERS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


@pytest.fixture(scope="module")
def executed():
    """The folder of chapters executed on smoke with device mps; they stay fresh between runs."""
    build = ROOT / "_build" / "softmps"
    command = ["-m", "macgpu", "run", "--profile", "smoke", "--device", "mps", "--build"]
    status = softmps.run([*command, str(build)])
    assert status == 0, "a chapter failed on the software device; its cell is shown above"
    return build / "executed" / "smoke"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_runs_on_mps_and_says_that_it_is_the_software_device(executed, path):
    run = executed_run(executed / path.name)
    assert run.device == "mps"
    assert run.device_name == softmps.NAME
