"""Checkpoints: all of the state comes back, and what is damaged or does not fit is refused."""

import errno
import os
import pickle
import random
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from macgpu import checkpoints
from macgpu.checkpoints import CheckpointError, Checkpoints, load_model, save_model

CPU = torch.device("cpu")


class Counter:
    """A loader's position, at its simplest."""

    def __init__(self):
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def make_parts(width=8, optimizer=torch.optim.AdamW):
    model = nn.Sequential(nn.Linear(5, width), nn.Dropout(0.5), nn.Linear(width, 3))
    steps = optimizer(model.parameters(), lr=0.01)
    return {
        "model": model,
        "optimizer": steps,
        "scheduler": torch.optim.lr_scheduler.LinearLR(steps, 1.0, 0.0, 40),
        "scaler": torch.amp.GradScaler("cpu", init_scale=4, growth_interval=3),
        "loader": Counter(),
    }


def train(parts, steps):
    """Draws from every generator, and touches every part; the loss of each step."""
    losses = []
    for _ in range(steps):
        parts["loader"].position += 1
        x = torch.full((4, 5), random.random() + np.random.rand() + parts["loader"].position)
        loss = parts["model"](x).square().mean()
        parts["optimizer"].zero_grad()
        parts["scaler"].scale(loss).backward()
        parts["scaler"].step(parts["optimizer"])
        parts["scaler"].update()
        parts["scheduler"].step()
        losses.append(loss.item())
    return losses


def seed():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def in_folder(folder, parts=None, report=print):
    return Checkpoints(folder, parts or make_parts(), CPU, report)


def two_checkpoints(folder):
    """Of steps 1 and 2, so that there is one to fall back to; the newer one's path."""
    seed()
    kept = in_folder(folder)
    for step in (1, 2):
        train(kept.parts, 1)
        newest = kept.save(step, {"step": step})
    return newest


def damage(path, change):
    content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, path)


def test_a_resumed_run_continues_to_the_last_bit(tmp_path):
    seed()
    kept = in_folder(tmp_path)
    train(kept.parts, 7)
    kept.save(7, {"step": 7})
    expected = train(kept.parts, 7)

    # Another process would have drawn other numbers by now.
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    again = in_folder(tmp_path)
    assert again.resume() == {"step": 7}
    assert train(again.parts, 7) == expected
    for name, part in kept.parts.items():
        state, other = part.state_dict(), again.parts[name].state_dict()
        torch.testing.assert_close(other, state, rtol=0, atol=0, msg=name)
    assert kept.parts["scaler"].get_scale() > 4, "the scale did not move, so nothing was shown"


@pytest.mark.parametrize("draw", [random.random, np.random.rand, lambda: torch.rand(1).item()])
def test_every_generator_continues(tmp_path, draw):
    kept = in_folder(tmp_path)
    draw()
    kept.save(1, {})
    expected = draw()
    seed()
    in_folder(tmp_path).resume()
    assert draw() == expected


def test_an_empty_folder_holds_nothing_to_resume(tmp_path):
    assert in_folder(tmp_path / "new").resume() is None


def test_the_newest_and_the_one_before_are_kept(tmp_path):
    kept = in_folder(tmp_path)
    for step in (5, 10, 15):
        kept.save(step, {"step": step})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["step-000000010.pt", "step-000000015.pt"]
    assert in_folder(tmp_path).resume() == {"step": 15}


def refuse(path, folder=None, parts=None):
    """The one line with which this newest checkpoint is passed over, and that it was."""
    folder = folder or path.parent
    lines = []
    kept = in_folder(folder, parts, lines.append)
    assert kept.resume() == {"step": 1}
    (line,) = lines
    assert line.startswith(path.name) and "\n" not in line
    assert line.endswith(" Going on from step-000000001.pt.")
    return line


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_a_truncated_checkpoint_is_passed_over(tmp_path, share):
    path = two_checkpoints(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert "truncated or damaged" in refuse(path)


def test_a_changed_bit_of_any_tensor_is_found(tmp_path):
    path = tmp_path / "model.pt"
    model = nn.Linear(64, 64)
    save_model(path, model, {})
    content = path.read_bytes()
    start = content.index(model.weight.detach().numpy().tobytes())
    for place in range(start, start + model.weight.nbytes, 997):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(bytes(changed))
        with pytest.raises(CheckpointError, match="model.pt: truncated or damaged"):
            load_model(path, model)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    path = two_checkpoints(tmp_path)
    kept = in_folder(tmp_path, make_parts(width=9))
    before = [value.clone() for value in kept.parts["model"].state_dict().values()]
    with pytest.raises(CheckpointError) as error:
        kept.resume()
    assert str(error.value) == (
        f"{path.name}: of another model: 0.weight is 8×5 float32 there, and 9×5 float32 here"
    )
    # Nothing was touched: neither the files nor the model.
    assert len(list(tmp_path.iterdir())) == 2 and path.exists()
    for value, old in zip(kept.parts["model"].state_dict().values(), before, strict=True):
        assert torch.equal(value, old)


def test_a_newer_version_is_passed_over(tmp_path):
    path = two_checkpoints(tmp_path)
    damage(path, lambda content: content.update(version=checkpoints.VERSION + 1))
    assert "version 2 is newer than 1, the newest known here; update macgpu" in refuse(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: c.pop("version"), "its version is None, and should be a number"),
        (lambda c: c.update(version="1"), "its version is '1', and should be a number"),
        (lambda c: c.update(parts=[1]), "its parts is list, and should be a dictionary"),
        (lambda c: c.update(kinds=None), "its kinds is NoneType, and should be a dictionary"),
        (lambda c: c.update(progress=3), "its progress is int, and should be a dictionary"),
        (lambda c: c.update(random=None), "its random is NoneType, and should be a dictionary"),
        (lambda c: c["random"].pop("python"), "its random numbers cannot be restored: 'python'"),
        (lambda c: c["random"].update(cpu=[]), "its random numbers cannot be restored: "),
        (lambda c: c["random"].update(numpy=3), "its random numbers cannot be restored: "),
        (lambda c: c["parts"].pop("model"), "holds no 'model'"),
        (lambda c: c["parts"].update(model=[1]), "its model is list, and should be a dictionary"),
        (lambda c: c["parts"].pop("loader"), "holds no 'loader'"),
        (lambda c: c["parts"].update(loader={}), "its loader does not fit: 'position'"),
        (lambda c: c["parts"]["optimizer"].update(param_groups=3), "its optimizer does not fit: "),
    ],
)
def test_a_malformed_checkpoint_is_passed_over(tmp_path, change, reason):
    path = two_checkpoints(tmp_path)
    damage(path, change)
    assert reason in refuse(path)


def test_a_file_that_torch_cannot_make_sense_of_is_passed_over(tmp_path):
    path = two_checkpoints(tmp_path)
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, record in records.items():
            # A whole archive, with a pickle that takes from an empty stack.
            archive.writestr(name, b"\x80\x02." if name.endswith("/data.pkl") else record)
    assert "no file of tensors and plain values" in refuse(path)


def test_a_folder_that_looks_like_a_rest_is_left_with_a_line(tmp_path):
    two_checkpoints(tmp_path)
    folder = tmp_path / "step-000000003.pt.partial"
    folder.mkdir()
    lines = []
    kept = in_folder(tmp_path, report=lines.append)
    assert kept.resume() == {"step": 2}
    assert lines == [f"{folder.name}: a folder, so no rest of a kill; it is left as it is."]
    # In the way of the next checkpoint, it is a line again.
    with pytest.raises(CheckpointError, match="step-000000003.pt: cannot be written: Is a dir"):
        kept.save(3, {})
    assert folder.is_dir()


@pytest.mark.parametrize("step", [1, 2])
def test_a_step_that_does_not_come_after_the_newest_is_refused(tmp_path, step):
    two_checkpoints(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    kept = in_folder(tmp_path)
    with pytest.raises(ValueError, match=f"step {step} does not come after step-000000002.pt"):
        kept.save(step, {})
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("there", ["mps", "cuda"])
def test_a_checkpoint_of_another_device_is_followed_with_a_line(tmp_path, there):
    path = two_checkpoints(tmp_path)
    damage(path, lambda content: content["random"].update({there: torch.zeros(16).byte()}))
    lines = []
    assert in_folder(tmp_path, report=lines.append).resume() == {"step": 2}
    assert lines == [
        f"{path.name} was written on {there}: on cpu, random numbers, such as dropout's, and "
        "rounding go on differently."
    ]


@pytest.mark.parametrize("here", ["mps", "cuda"])
def test_a_checkpoint_of_the_cpu_is_followed_elsewhere_with_a_line(tmp_path, here):
    path = two_checkpoints(tmp_path)
    lines = []
    kept = Checkpoints(tmp_path, make_parts(), torch.device(here), lines.append)
    assert kept.resume() == {"step": 2}
    (line,) = lines
    assert line.startswith(f"{path.name} was written on cpu: on {here}, random numbers")


def test_a_checkpoint_of_the_same_device_is_followed_in_silence(tmp_path):
    two_checkpoints(tmp_path)
    lines = []
    in_folder(tmp_path, report=lines.append).resume()
    assert lines == []


def test_another_optimizer_is_refused(tmp_path):
    path = two_checkpoints(tmp_path)
    with pytest.raises(CheckpointError) as error:
        in_folder(tmp_path, make_parts(optimizer=torch.optim.SGD)).resume()
    assert str(error.value) == f"{path.name}: its optimizer is AdamW, and here it is SGD"


def test_a_part_that_is_missing_is_refused(tmp_path):
    path = two_checkpoints(tmp_path)
    parts = make_parts()
    del parts["scaler"]
    with pytest.raises(CheckpointError, match="its scaler is GradScaler, and here it is none"):
        in_folder(tmp_path, parts).resume()
    save_model(path, make_parts()["model"], {})
    assert "holds no 'kinds'" in refuse(path)


def test_a_part_that_does_not_fit_is_refused(tmp_path):
    path = two_checkpoints(tmp_path)
    damage(path, lambda content: content["parts"]["optimizer"].update(param_groups=[]))
    assert "its optimizer does not fit: loaded state dict has a different number" in refuse(path)


@pytest.mark.parametrize("content", [{"weights": torch.ones(2)}, torch.ones(2)])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    path = tmp_path / "step-000000003.pt"
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="no checkpoint of macgpu"):
        in_folder(tmp_path).resume()


class Stranger:
    """Unpickled, it would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_file_with_code_in_it_is_refused_and_not_run(tmp_path):
    path = two_checkpoints(tmp_path)
    trace = tmp_path / "it-ran"
    damage(path, lambda content: content.update(progress=Stranger(trace)))
    assert "no file of tensors and plain values" in refuse(path)
    assert not trace.exists()
    # It would have run.
    pickle.loads(pickle.dumps(Stranger(trace)))
    assert trace.exists()


def test_a_refused_checkpoint_is_set_aside_and_never_costs_the_good_one(tmp_path):
    path = two_checkpoints(tmp_path)
    path.write_bytes(b"")
    refuse(path)
    kept = in_folder(tmp_path)
    kept.resume()
    kept.save(2, {"step": 2})
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["step-000000001.pt", path.name, f"{path.name}.refused"]


def test_what_a_kill_left_of_a_file_is_removed(tmp_path):
    path = two_checkpoints(tmp_path)
    rest = tmp_path / "step-000000003.pt.partial"
    rest.write_bytes(path.read_bytes()[:100])
    assert in_folder(tmp_path).resume() == {"step": 2}
    assert not rest.exists()


def test_what_could_not_be_read_again_is_refused_when_it_is_saved(tmp_path):
    two_checkpoints(tmp_path)
    kept = in_folder(tmp_path)
    with pytest.raises(CheckpointError, match="no file of tensors and plain values"):
        kept.save(3, {"started by": Stranger(tmp_path / "x")})
    assert kept.resume() == {"step": 2}
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("limit", [0, 700, 2000])
def test_a_full_disk_is_one_line_and_leaves_the_last_good_checkpoint(tmp_path, limit):
    two_checkpoints(tmp_path)
    kept = in_folder(tmp_path)
    kept.resume()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Files may not grow beyond so many bytes; Python leaves that an error, not a signal.
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(CheckpointError) as error:
            kept.save(3, {"step": 3})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(error.value) == f"step-000000003.pt: cannot be written: {os.strerror(errno.EFBIG)}"
    assert len(list(tmp_path.iterdir())) == 2
    assert in_folder(tmp_path).resume() == {"step": 2}


def test_weights_load_from_the_best_model_and_from_a_checkpoint(tmp_path):
    path = two_checkpoints(tmp_path)
    source, target = make_parts()["model"], make_parts()["model"]
    save_model(tmp_path / "best.pt", source, {"loss": 0.5})
    assert load_model(tmp_path / "best.pt", target) == {"loss": 0.5}
    torch.testing.assert_close(target.state_dict(), source.state_dict(), rtol=0, atol=0)
    assert load_model(path, target) == {"step": 2}
    with pytest.raises(CheckpointError, match="absent.pt: cannot be read: No such file"):
        load_model(tmp_path / "absent.pt", target)


@pytest.mark.parametrize(
    ("source", "form"),
    [
        (make_parts(width=9)["model"], "9×5 float32"),
        # torch would convert these without a word.
        (make_parts()["model"].double(), "8×5 float64"),
    ],
)
def test_weights_of_another_model_are_refused_and_change_nothing(tmp_path, source, form):
    save_model(tmp_path / "best.pt", source, {})
    target = make_parts()["model"]
    before = {name: value.clone() for name, value in target.state_dict().items()}
    with pytest.raises(CheckpointError) as error:
        load_model(tmp_path / "best.pt", target)
    assert str(error.value) == (
        f"best.pt: of another model: 0.weight is {form} there, and 8×5 float32 here"
    )
    torch.testing.assert_close(target.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: c.pop("progress"), "holds no 'progress'"),
        (lambda c: c.pop("parts"), "holds no 'parts'"),
        (lambda c: c.update(parts=[1]), "its parts is list, and should be a dictionary"),
        (lambda c: c["parts"].update(model=3), "its model is int, and should be a dictionary"),
    ],
)
def test_malformed_weights_are_refused(tmp_path, change, reason):
    path = tmp_path / "best.pt"
    model = make_parts()["model"]
    save_model(path, model, {})
    damage(path, change)
    with pytest.raises(CheckpointError) as error:
        load_model(path, model)
    assert str(error.value) == f"best.pt: {reason}"


def test_a_path_may_be_text(tmp_path):
    path, model = str(tmp_path / "best.pt"), make_parts()["model"]
    save_model(path, model, {"loss": 0.5})
    assert load_model(path, model) == {"loss": 0.5}
    checkpoints.write(path, {"answer": 42})
    assert checkpoints.read(path)["answer"] == 42
