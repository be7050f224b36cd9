"""The articles' lines of code, executed as they stand: the page of claims says what they do."""

import functools
import os
import re
import subprocess
import sys
import warnings
from importlib.metadata import metadata

import pytest
import torch
from torch import nn

from macgpu.claims import claims
from macgpu.softmps import environment, run_code


def shows(article, start):
    """Name the claim that a test stands for, where it fails."""

    def named(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            found = [c for c in claims() if c.article == article and c.claim.startswith(start)]
            assert len(found) == 1, (
                f"data/claims.csv: {len(found)} claims of article {article} begin {start!r}"
            )
            try:
                test(*args, **kwargs)
            except (AssertionError, pytest.fail.Exception) as failure:
                (claim,) = found
                raise AssertionError(
                    f"Article {article} claims: {claim.claim}. The verdict is {claim.verdict!r}, "
                    f"and torch {torch.__version__} does something else than its evidence says: "
                    f"{claim.evidence}. Execute the code, then mend data/claims.csv, "
                    f"notebooks/{claim.chapter}.ipynb and this test. What failed: {failure}"
                ) from failure

        return run

    return named


def test_a_test_that_fails_names_its_claim_and_what_to_do():
    @shows("1", "An environment with Python 3.9")
    def fails():
        raise AssertionError("3.9 is enough")

    with pytest.raises(AssertionError) as raised:
        fails()
    message = str(raised.value)
    assert message.startswith("Article 1 claims: An environment with Python 3.9")
    assert "mend data/claims.csv" in message and message.endswith("3.9 is enough")


@shows("1", '`torch.device("mps")` returns')
@shows("2", '`print(torch.device("mps"))`')
def test_a_device_without_a_number_is_printed_without_one():
    device = torch.device("mps")  # article 1 expects 'mps:0', article 2 the repr
    assert (str(device), repr(device)) == ("mps", "device(type='mps')")
    assert device != torch.device("mps:0")
    found = run_code("import torch; print(torch.rand(3, 3).to(torch.device('mps')).device)")
    assert found == "mps:0"


@shows("1", "An environment with Python 3.9")
def test_torch_refuses_the_python_that_the_articles_ask_for():
    asked = metadata("torch")["Requires-Python"]
    least = tuple(map(int, re.search(r">=\s*(\d+)\.(\d+)", asked).groups()))
    assert least > (3, 9)


@shows("1", "`torch.cuda.amp.GradScaler(enabled=False)`")
def test_the_first_article_s_scaler_is_deprecated_and_off():
    with pytest.warns(FutureWarning, match="deprecated"):
        scaler = torch.cuda.amp.GradScaler(enabled=False)
    assert not scaler.is_enabled()
    loss = torch.ones(1, requires_grad=True).sum()
    assert scaler.scale(loss) is loss


@shows("2", "`from torch.cuda.amp import autocast`")
def test_the_second_article_s_autocast_takes_no_such_argument():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with pytest.raises(TypeError, match="device_type"):
            torch.cuda.amp.autocast(dtype=torch.float16, device_type="mps")


SCALER = """
import warnings
from torch.cuda.amp import GradScaler
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    scaler = GradScaler()
print(scaler.is_enabled(), any("Disabling" in str(w.message) for w in said))
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a CUDA card it is on")
@shows("2", "`GradScaler()` from torch.cuda.amp")
def test_the_second_article_s_scaler_switches_itself_off_where_there_is_no_cuda():
    assert run_code(SCALER) == "False True"


@shows("2", '`with torch.device("cpu"):`')
def test_a_device_context_moves_no_operation_to_the_cpu():
    found = run_code(
        "import torch\n"
        "x = torch.ones(3, device='mps')\n"
        "with torch.device('cpu'):\n"
        "    print((x + 1).device, torch.zeros(1).device)\n"
    )
    assert found == "mps:0 cpu"


LOADER = """
import warnings
import torch
from torch.utils.data import DataLoader, TensorDataset
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    x, = next(iter(DataLoader(TensorDataset(torch.ones(4, 1)), 2, pin_memory=True)))
print(any("pin_memory" in str(w.message) for w in said), x.is_pinned())
"""


@shows("1", "pin_memory should be off")
@shows("2", "DataLoader should be given")
def test_pin_memory_is_warned_of_and_left_out_on_mps():
    assert run_code(LOADER) == "True False"


@shows("1", "`PYTORCH_MPS_LOG_LEVEL=DEBUG`")
def test_the_invented_variable_logs_nothing():
    work = (
        "import os, torch\n"
        "print((torch.ones(3, device='mps') * 2).sum().item(), flush=True)\n"
        "os._exit(0)"
    )
    surroundings = dict(os.environ) if sys.platform == "darwin" else environment()
    said = [
        subprocess.run(
            [sys.executable, "-c", work],
            env=surroundings | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ).stdout
        for more in ({}, {"PYTORCH_MPS_LOG_LEVEL": "DEBUG"})
    ]
    assert said == ["6.0\n", "6.0\n"]


class ParallelLinear(nn.Module):
    """The first article's layer; its rank is an argument, so that both can be asked."""

    def __init__(self, in_features, out_features, rank):
        super().__init__()
        self.world_size = 2
        self.rank = rank
        self.linear = nn.Linear(in_features // self.world_size, out_features)

    def forward(self, x):
        x_split = x.chunk(self.world_size, dim=-1)
        return self.linear(x_split[self.rank])


@shows("1", "A `ParallelLinear`")
def test_the_first_article_s_parallel_layer_drops_half_of_its_input():
    torch.manual_seed(0)
    whole = nn.Linear(64, 32).double()
    x = torch.randn(16, 64, dtype=torch.float64, requires_grad=True)
    outputs = []
    for rank, columns in enumerate(whole.weight.detach().chunk(2, dim=1)):
        layer = ParallelLinear(64, 32, rank).double()
        layer.linear.load_state_dict({"weight": columns, "bias": whole.bias.detach()})
        outputs.append(layer(x))
        (gradient,) = torch.autograd.grad(outputs[-1].sum(), x)
        assert gradient.chunk(2, dim=1)[1 - rank].abs().max() == 0
    for output in outputs:
        assert (output - whole(x)).abs().max() > 0.3
    # The sum that it lacks, less the bias that two ranks add twice, is the layer.
    torch.testing.assert_close(sum(outputs) - whole.bias, whole(x))
