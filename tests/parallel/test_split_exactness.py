"""Split models against whole ones, in real processes joined by gloo."""

import json

import nbformat
import pytest
import torch.distributed.checkpoint as dcp

from macgpu.errors import BookError
from macgpu.parallel.launch import start
from macgpu.parallel.shape import Shape
from macgpu.parallel.training import Run, checkpoints
from tests.conftest import ROOT

CHAPTER = ROOT / "notebooks" / "10_tensor_parallelism.ipynb"


@pytest.fixture(scope="module", params=[2, 4])
def checked(request, tmp_path_factory):
    return start("exact", request.param, tmp_path_factory.mktemp("exact"), limit_s=300)


def test_outputs_and_gradients_of_blocks_agree_in_float64(checked):
    ways = {(one["block"], one["way"]) for one in checked["blocks"]}
    assert {block for block, _ in ways} == {"mlp", "attention"}
    assert len(ways) == 2 * 9
    for one in checked["blocks"]:
        for part in ("output", "input gradient", "weight gradient"):
            assert one[part] < 1e-12, one


def test_a_language_model_with_split_embedding_and_loss_agrees_in_float64(checked):
    models = [one for one in checked["models"] if one["dtype"] == "float64"]
    assert {one["layout"] for one in models} == {"all-reduce", "sequence parallel"}
    for one in models:
        for part in ("logits", "loss", "gradients"):
            assert one[part] < 1e-12, one


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-5), ("bfloat16", 3e-2)])
def test_narrower_types_stay_within_their_bounds(checked, dtype, bound):
    models = [one for one in checked["models"] if one["dtype"] == dtype]
    assert models
    for one in models:
        for part in ("logits", "loss", "gradients"):
            assert one[f"{part}, relative"] < bound, one
        # Not exact by chance: these types do round.
        assert one["gradients, relative"] > 1e-9


def test_a_transformer_block_needs_two_sums_each_way(checked):
    counts = {one["layout"]: one for one in checked["counts"]}
    assert counts["all-reduce"]["forward"] == {"all-reduce": 2}
    assert counts["all-reduce"]["backward"] == {"all-reduce": 2}
    pair = {"all-gather": 2, "reduce-scatter": 2}
    assert counts["sequence parallel"]["forward"] == pair
    assert counts["sequence parallel"]["backward"] == pair


def test_the_chapters_steps_from_the_published_layer_to_an_exact_one(tmp_path):
    # The file that the chapter's cells write, one after the other.
    file = tmp_path / "steps.py"
    cells = nbformat.read(CHAPTER, 4).cells
    written = [cell.source.partition("\n")[2] for cell in cells if "%%writefile" in cell.source]
    file.write_text("\n".join(written))
    steps = {one["step"]: one for one in start("layer", 2, tmp_path, file=file)["steps"]}
    assert steps["as_published"]["output"] > 0.5
    assert steps["summed"]["output"] > 0.5
    assert steps["bias_once"]["output"] < 1e-12
    assert steps["bias_once"]["weight gradient"] > 0.5
    assert steps["total_forward"]["weight gradient"] < 1e-12
    assert steps["total_forward"]["input gradient"] > 0.5
    assert max(value for value in steps["with_the_pair"].values() if value != "with_the_pair") < (
        1e-12
    )


def test_twenty_steps_agree_and_the_checkpoint_loads_at_another_degree(tmp_path):
    saved = tmp_path / "saved"
    trained = start("train", 2, tmp_path, folder=saved, steps=20, save_every=10)
    assert trained["weights apart"] < 1e-10
    assert trained["losses"][-1] < trained["losses"][0]
    # A rank holds its half, and the small parts that are not split.
    for held in trained["elements held"]:
        assert 0.5 < held / trained["elements, whole"] < 0.52
    assert trained["checkpoints"] == ["step-000010", "step-000020"]

    # What was cut off while it was written does not count.
    (saved / "step-000020" / ".metadata").unlink()
    resumed = start("train", 4, tmp_path, folder=saved, steps=20, resume=True)
    assert resumed["from step"] == 10
    assert resumed["weights apart"] < 1e-10
    assert resumed["losses"] == pytest.approx(trained["losses"][10:], abs=1e-10)

    said = []
    again = start("train", 1, tmp_path, folder=saved, steps=5, resume=True, report=said.append)
    assert (again["from step"], again["losses"]) == (10, [])
    assert "nothing left to do: step 10 is done, --steps 5" in said


def test_the_newest_checkpoint_is_that_of_the_highest_step(tmp_path):
    names = ["step-000020", "step-999995", "step-1000000"]
    for name in (*names, "step-old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".metadata").touch()
    assert [path.name for path in checkpoints(tmp_path)] == names


def test_a_checkpoint_that_is_cut_off_while_overwritten_does_not_count(tmp_path, monkeypatch):
    one = Run(Shape(layers=1))
    one.save(tmp_path)
    one.step = 1
    one.save(tmp_path)
    with monkeypatch.context() as full_disk:
        full_disk.setattr(dcp.FileSystemWriter, "write_data", _no_space)
        with pytest.raises(BookError, match=r"step-000001 cannot be written: no space left$"):
            one.save(tmp_path)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000000"]
    one.save(tmp_path)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000000", "step-000001"]


def _no_space(*_):
    raise OSError("no space left")


def test_data_parallel_steps_agree_and_sharded_ranks_hold_their_part(checked):
    found = checked["replicas"]
    ddp, fsdp, whole = found["DDP"], found["FSDP2"], found["whole"]
    assert ddp["weights apart"] < 1e-12 and fsdp["weights apart"] < 1e-12
    assert ddp["elements held"] == whole["elements held"]
    assert fsdp["elements held"] <= 0.55 * whole["elements held"]


def test_timings_of_both_kinds_come_back(tmp_path):
    found = start("time", 2, tmp_path, profile="smoke", widths=[32, 64], sizes=[1024], tokens=64)
    assert [row["width"] for row in found["blocks"]] == [32, 64]
    assert json.loads((tmp_path / "time.json").read_text()) == found
    assert all(row[name] > 0 for row in found["blocks"] for name in ("split", "one core"))
