"""The troubleshooting page: every cause has its entry, and its messages are torch's own words."""

import re
import subprocess
import sys
import warnings

import pytest
import torch

from macgpu.preflight.kinds import KINDS, finding
from macgpu.publish.troubleshooting_page import REPOSITORIES, troubleshooting_page
from macgpu.troubleshooting import entries
from tests.conftest import ROOT
from tests.messages import explained_by

ENTRIES = entries()

REPORTS = (
    "pytorch 118115 165267 109457 197636 139550 189690 122016 90421 142397 184286 96814 152351 "
    "121113 181213 164299 179294 46648 70344 138898 86195 143955 192551 193349 152199 173808",
    "build-nanogpt 92",
    "LLMs-from-scratch 635 791 1020",
    "accelerate 3718",
    "transformers 32648",
    "stable-audio-3 68",
    "nanoGPT 654 118",
    "ultralytics 2172",
    "dl-for-micro 20",
    "hyrax 224",
    "rf-detr 29",
    "nanochat 792",
    "mlx-benchmark 21",
    "lightning 16148",
)
"""The repository and the numbers of its reports."""


def test_every_entry_has_an_anchor_a_cause_a_check_and_a_remedy():
    assert len({entry.anchor for entry in ENTRIES}) == len(ENTRIES)
    assert len({entry.title for entry in ENTRIES}) == len(ENTRIES)
    chapters = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    for entry in ENTRIES:
        assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", entry.anchor)
        assert entry.title and entry.cause and entry.check and entry.remedy, entry.anchor
        assert set(entry.chapters) <= chapters, entry.anchor
        assert {source.partition("#")[0] for source in entry.sources} <= set(REPOSITORIES)


def test_a_message_leads_to_one_entry():
    messages = [message for entry in ENTRIES for message in entry.messages]
    assert len(set(messages)) == len(messages)


def test_links_inside_of_the_page_lead_to_an_entry():
    anchors = {entry.anchor for entry in ENTRIES}
    assert set(re.findall(r"\]\(#([^)]+)\)", troubleshooting_page(ENTRIES))) == anchors


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_preflight_has_its_entry(kind):
    assert kind in {entry.anchor for entry in ENTRIES}
    assert finding(kind).book == f"troubleshooting.html#{kind}"


@pytest.mark.parametrize("reports", REPORTS)
def test_every_report_is_served(reports):
    repository, *numbers = reports.split()
    page = troubleshooting_page(ENTRIES)
    for number in numbers:
        address = f"https://github.com/{REPOSITORIES[repository]}/issues/{number}"
        assert f"[{repository}#{number}]({address})" in page


def test_the_page_holds_each_entry_below_its_target():
    page = troubleshooting_page(ENTRIES)
    for entry in ENTRIES:
        section = page.partition(f"\n({entry.anchor})=\n### {entry.title}\n")[2]
        section = section.partition(")=\n### ")[0]
        for text in (entry.cause, entry.check, entry.remedy, *entry.messages):
            assert text in section, entry.anchor


def _half_parameters():
    model = torch.nn.Linear(2, 1).half()
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler.scale(model(torch.ones(1, 2).half()).sum()).backward()
    scaler.unscale_(optimizer)


def _cut_off(folder):
    path = folder / "model.pt"
    torch.save(torch.zeros(9), path)
    path.write_bytes(path.read_bytes()[:-200])
    torch.load(path, weights_only=True)


@pytest.mark.parametrize(
    ("anchor", "fault"),
    [
        ("half-parameters", lambda folder: _half_parameters()),
        ("damaged-checkpoint", _cut_off),
        ("dtype-mismatch", lambda folder: torch.nn.Linear(2, 2).half()(torch.zeros(1, 2))),
        ("numpy-of-mps", lambda folder: torch.zeros(1, requires_grad=True).numpy()),
        ("torch-mps-attribute", lambda folder: torch.mps.max_memory_allocated()),
        ("torch-mps-attribute", lambda folder: torch.mps.manual_seed_all(0)),
        ("index-out-of-range", lambda folder: torch.nn.Embedding(2, 1)(torch.tensor([2]))),
    ],
)
def test_torch_says_what_the_page_says(anchor, fault, tmp_path):
    with pytest.raises(Exception) as raised:
        fault(tmp_path)
    assert explained_by(str(raised.value)) == {anchor}


@pytest.mark.parametrize(
    ("anchor", "call"),
    [
        ("cuda-amp", lambda: torch.cuda.amp.GradScaler()),
        ("cuda-autocast", lambda: torch.autocast("cuda")),
        ("autocast-type", lambda: torch.autocast("mps", torch.float64)),
    ],
)
def test_torch_warns_in_the_words_of_the_page(anchor, call):
    if torch.cuda.is_available() and anchor.startswith("cuda"):
        pytest.skip("CUDA IS HERE: what is off without it is on")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    assert seen
    assert all(explained_by(str(warning.message)) == {anchor} for warning in seen)


@pytest.mark.parametrize(
    ("anchor", "program"),
    [
        (
            "no-main-guard",
            "import multiprocessing\n"
            "multiprocessing.get_context('spawn').Process(target=print).start()\n",
        ),
        # What a spawned worker does with a dataset whose class stands in a notebook.
        (
            "worker-cannot-load",
            "import subprocess, sys\n"
            "load = 'import pickle, sys; pickle.load(sys.stdin.buffer)'\n"
            "subprocess.run([sys.executable, '-c', load], input=b'c__main__\\nDataset\\n.')\n",
        ),
    ],
)
def test_a_spawned_process_says_what_the_page_says(anchor, program, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(program)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert explained_by(re.split(r"(?:Runtime|Attribute)Error:", done.stderr)[1]) == {anchor}
