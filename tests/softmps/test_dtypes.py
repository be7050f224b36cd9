"""The page of data types against the software device, which is tested to refuse as a Mac does."""

from macgpu.publish.dtypes_page import dtypes
from macgpu.softmps import run_code

CODE = """
import torch
for name in {names}:
    try:
        torch.zeros(2, dtype=getattr(torch, name)).to("mps").cpu()
        print(name, "yes")
    except TypeError:
        print(name, "no")
"""


def test_the_page_of_data_types_says_what_the_software_device_does():
    # The README of the device lists what it lets pass although a Mac refuses it: float8.
    listed = {
        row["dtype"]: row["on_mps"] for row in dtypes() if not row["dtype"].startswith("float8")
    }
    found = run_code(CODE.format(names=sorted(listed)))
    assert dict(line.split() for line in found.splitlines()) == listed
