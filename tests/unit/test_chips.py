"""Every printed value of a chip has a source, and the sources are listed."""

import re
import shutil

import pytest

from macgpu import chips


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(chips.CHIPS, tmp_path / "chips")


def change(folder, old, new, name="chips.csv"):
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new), encoding="utf-8")


def test_every_printed_value_has_a_source_that_is_listed_beside_it():
    all_chips, sources = chips.read_chips(), chips.read_sources()
    table, listed = chips.chips_html(all_chips), chips.sources_html(sources)
    cells = re.findall(r"<td>(.*?)</td>", table)
    assert len(cells) == len(all_chips) * len(chips.COLUMNS)
    for cell in cells:
        # A value is followed by its keys at once, or by the other variants and then the keys.
        assert cell == "–" or re.fullmatch(r"((?:[^<]|<br>)+<sup>.+?</sup>)+", cell), cell
        for key in re.findall(r'href="#source-(\w+)"', cell):
            assert f'id="source-{key}"' in listed


def test_every_source_is_used_and_has_a_known_mark():
    used = {
        key
        for chip in chips.read_chips()
        for cell in chip.cells.values()
        for value in cell
        for key in value.sources
    }
    assert used == set(chips.read_sources())
    assert {key[0] for key in used} == set(chips.MARKS)


def test_third_party_and_derived_values_are_marked_in_the_table():
    by_name = {chip.name: chip for chip in chips.read_chips()}
    assert ">T8</a></sup> / 10<sup>" in chips.chips_html((by_name["M2"],))
    assert ">D1</a>" in chips.chips_html((by_name["M5 Ultra"],))


def test_all_families_are_there_with_cores_bandwidth_and_memory():
    all_chips = chips.read_chips()
    families = {f"M{n}" for n in range(1, 7)}
    assert {chip.name.split()[0] for chip in all_chips} == families
    assert "M4 Ultra" not in {chip.name for chip in all_chips}
    for chip in all_chips:
        for column in ("cpu_cores", "gpu_cores", "bandwidth_gb_s", "memory_gb"):
            assert chip.cells[column], f"{chip.name} without {column}"
    (m3_max,) = (chip for chip in all_chips if chip.name == "M3 Max")
    assert m3_max.numbers("bandwidth_gb_s") == [300, 400]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (",2.6,A40", ",2.6,"),
        (",2.6,A40", ",2.6,unsourced"),
        (",2.6,A40", ",2.6,A99"),
        (",2.6,A40", ",,A40"),
        ("T8 / R7", "T8 / R7 / R7"),
    ],
)
def test_a_value_without_a_listed_source_is_refused(copy, old, new):
    change(copy, old, new)
    with pytest.raises(chips.ChipsError, match="^M[12], "):
        chips.read_chips(copy)


def test_a_source_with_an_unknown_mark_is_refused(copy):
    change(copy, "\nT8,", "\nX8,", "sources.csv")
    with pytest.raises(chips.ChipsError, match="X8"):
        chips.read_sources(copy)
