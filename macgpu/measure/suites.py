"""The suites of ``macgpu bench``: which cases are measured, in which order, into one record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from macgpu.measure import ceilings, energy, footprint, loading, parity
from macgpu.measure.ceilings import SWEEPS, Cell
from macgpu.measure.flops import Work, count_step, floor
from macgpu.measure.memory import OUT_OF_MEMORY, peak_bytes, ran_out, reset_peak
from macgpu.measure.records import PRECISION, Comparison, Footprint, Label, Record, Result, make
from macgpu.measure.steps import FIRST, Options, TrainStep, ladder, precisions
from macgpu.measure.timing import EFFORTS, time_block, time_step
from macgpu.models import ARTICLE, CASES, Case

Report = Callable[[str], None]

SUITES = ("ceilings", "models", "precision", "energy", "loading", "memory")
ENERGY_CASE = PRECISION_CASE = "resnet50"
ENERGY_BATCHES = {"smoke": (2,), "quick": (2, 8, 32), "full": (16, 64, 256)}
"""By profile: the tuned step is measured at each, the plain one at the largest."""

CURVE_WITHIN = {"float32": 0.02, "tf32": 0.02, "bfloat16": 0.10, "float16": 0.10}
"""How far a tuned step's losses may be from the plain step's, by the type it computes in. ResNet-50
in bfloat16 was seen 7 % off within five steps, on its random labels."""

GATE_STEPS = {"smoke": 2, "quick": 3, "full": FIRST}
"""Length of the short run of the parity gate, by profile."""


def run(
    suites: Iterable[str],
    device: torch.device,
    profile: str,
    provenance: str = "reader",
    report: Report = print,
) -> Record:
    """Run suites on the device and make one record of them.

    Models are held against the ceilings, so those are measured whenever models are. On smoke
    only the small models are.
    """
    chosen = [name for name in SUITES if name in tuple(suites)]
    cells: tuple[Cell, ...] = ()
    results: list[Result] = []
    loaders: tuple[loading.Loading, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    footprints: tuple[Footprint, ...] = ()
    if "ceilings" in chosen or "models" in chosen:
        cells = ceilings.measure(device, SWEEPS[profile], EFFORTS[profile], report)
    if "models" in chosen:
        for name in ARTICLE if profile == "smoke" else CASES:
            results += measure_case(CASES[name], device, profile, cells, report)
    if "precision" in chosen:
        name = "cnn" if profile == "smoke" else PRECISION_CASE
        results += measure_precision(CASES[name], device, profile, report)
    if "energy" in chosen:
        results += measure_energy(CASES[ENERGY_CASE], device, profile, report)
    if "loading" in chosen:
        loaders = tuple(loading.measure(device, profile, report))
    if "memory" in chosen:
        comparisons = tuple(footprint.emptying(device))
        footprints = tuple(footprint.measure(device, profile, report))
    return make(
        device,
        tuple(chosen),
        profile,
        provenance,
        cells,
        tuple(results),
        comparisons,
        loaders,
        footprints,
    )


def measure_case(
    case: Case,
    device: torch.device,
    profile: str,
    cells: tuple[Cell, ...] = (),
    report: Report = print,
    rungs: Sequence[tuple[str, Options]] | None = None,
) -> Iterator[Result]:
    """Gate a case, then time each rung of its ladder, or those given, at the profile's batch size.

    A case that fails the gate is one result, with the difference and without a time. A rung whose
    losses leave the plain step's, that runs out of memory, or that torch refuses (an operator
    that is missing, a compiler that fails) says so, and the next is tried.
    """
    # The compiler gives up on a function that it has compiled for many models.
    torch.compiler.reset()
    batch_size = case.batches[profile]
    checked = parity.gate(case, device, steps=GATE_STEPS[profile])
    if not checked.passed:
        label = Label(case.name, batch_size, Options())
        report(f"{label}: not timed, differs from {checked.reference}: {checked.difference}")
        yield _failed(label, f"wrong: {checked.difference}", checked)
        return
    work = count_step(case, batch_size)
    plain: list[float] | None = None
    for name, options in ladder(case, device) if rungs is None else rungs:
        label = Label(case.name, batch_size, options, name)
        try:
            result, losses = _rung(case, label, device, profile, work, cells, checked, plain)
            plain = plain or losses
        except (RuntimeError, MemoryError) as error:
            result = _failed(label, _why(error, device, report), checked)
        report(f"{label}: {_shown(result)}")
        yield result


def measure_precision(
    case: Case, device: torch.device, profile: str, report: Report = print
) -> Iterator[Result]:
    """Time and peak memory of a case's plain step in each data type, at the same batch size."""
    rungs = [(PRECISION + name, options) for name, options in precisions(device)]
    return measure_case(case, device, profile, (), report, rungs)


def measure_energy(
    case: Case, device: torch.device, profile: str, report: Report = print
) -> list[Result]:
    """Energy of a case's plain step, and of its most tuned one at rising batch sizes, beside one
    idle baseline.

    Without a meter, each result says so and nothing is run.
    """
    meter = energy.open_meter(device)
    window_s = energy.WINDOWS[profile]
    idle = energy.measure_idle(device, meter, window_s)
    *others, tuned = ladder(case, device)
    batches = ENERGY_BATCHES[profile]
    steps = [(plain, batches[-1]) for plain in others[:1]] + [(tuned, size) for size in batches]
    results = []
    for (name, options), batch_size in steps:
        # The compiler gives up on a function that it has compiled for many shapes.
        torch.compiler.reset()
        label = Label(case.name, batch_size, options, name)
        results.append(_energy(case, label, device, profile, meter, idle, report))
        report(f"energy of {label}: {_energy_shown(results[-1])}")
    return results


def _energy(
    case: Case,
    label: Label,
    device: torch.device,
    profile: str,
    meter: energy.Meter | energy.NoMeter,
    idle: energy.Energy,
    report: Report,
) -> Result:
    if idle.reason:
        measured = energy.Energy(idle.source, idle.reason)
        return Result(label, None, None, None, None, None, None, measured)
    try:
        step = TrainStep(case, device, label.options, label.batch_size)
        timing = time_step(step, device, EFFORTS[profile])
        measured = energy.measure(
            step,
            label.batch_size,
            device,
            meter,
            idle,
            energy.WINDOWS[profile],
            timing.steps_per_block,
        )
    except (RuntimeError, MemoryError) as error:
        return _failed(label, _why(error, device, report), None)
    return Result(label, timing, None, None, None, None, None, measured)


def _rung(
    case: Case,
    label: Label,
    device: torch.device,
    profile: str,
    work: Work,
    cells: tuple[Cell, ...],
    checked: parity.Parity,
    plain: list[float] | None,
) -> tuple[Result, list[float]]:
    """The result of one rung, and the losses of its first steps."""
    options = label.options
    reset_peak(device)
    step = TrainStep(case, device, options, label.batch_size)
    first_call_s = time_block(step, 1, device)
    time_block(step, FIRST - 1, device)
    losses = step.first_losses()
    if plain is not None:
        within = CURVE_WITHIN[options.peak]
        checked = parity.same_curve(losses, plain, "the plain step on this device", within)
        if not checked.passed:
            return _failed(label, f"wrong: {checked.difference}", checked), losses
    timing = time_step(step, device, EFFORTS[profile], first_call_s)
    peak = peak_bytes(device)
    peak_flops = ceilings.peak_flops(cells, options.peak)
    bandwidth = ceilings.bandwidth(cells)
    least = None
    if peak_flops and bandwidth:
        least = floor(work, peak_flops, bandwidth, 2 if options.autocast else 4)
    return Result(label, timing, None, checked, work, least, peak), losses


def _failed(label: Label, why: str, checked: parity.Parity | None) -> Result:
    return Result(label, None, why, checked, None, None, None)


def _why(error: Exception, device: torch.device, report: Report) -> str:
    """Why there is no time, for a record: without the message, which may hold a folder's name."""
    if ran_out(error, device):
        return OUT_OF_MEMORY
    report(str(error))
    return f"failed: {type(error).__name__}"


def _energy_shown(result: Result) -> str:
    measured = result.energy
    if measured is None or measured.net_j_per_sample is None:
        return result.failure or measured.reason
    return (
        f"{measured.net_j_per_sample:.3g} J a sample, {measured.gross_j_per_sample:.3g} gross "
        f"({measured.source})"
    )


def _shown(result: Result) -> str:
    if result.timing is None:
        return result.failure
    rate = f"{result.samples_per_s:,.1f} samples/s"
    times = f", {result.times_floor:.1f} times the floor" if result.floor else ""
    return f"{result.timing} a step, {rate}{times}"
