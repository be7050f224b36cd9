"""The page of the environment variables, made from ``macgpu.variables``."""

from __future__ import annotations

from macgpu.variables import DOCUMENTATION, INVENTED, REAL, Variable

INTRODUCTION = f"""# Environment variables

The names under "Real ones" are in the binary of the official macOS wheel of torch 2.14.1, and no
others of this kind. Those under "Invented ones" are not. What the real ones mean is from
[PyTorch's documentation]({DOCUMENTATION}) and from its source; when they are read is from the
source alone, of a version that may be older than yours. Nothing here was tried on a Mac.

torch reads each of them **once**, at import or at first use. To be sure, set a variable in the
shell, before Python starts; in a notebook, in the first cell, before any import. The chapter on
[operators](../notebooks/07_operators_dtypes_fallback.ipynb) shows one that was set too late.
`macgpu doctor` lists those that are set, and says which are not real.

## Real ones
"""

OTHERS = """## Invented ones

These names are in scripts and articles, and torch reads none of them: they are not in the binary.
Setting one does nothing, without a message.
"""


def variables_page() -> str:
    """The page in MyST Markdown: the real variables, then the invented ones."""
    real = [_entry(name, variable) for name, variable in REAL.items()]
    invented = [
        f"`{name}`\n: Not read. {_sentence(_code(tip))}.\n" for name, tip in INVENTED.items()
    ]
    return "\n".join([INTRODUCTION, *real, OTHERS, *invented])


def _entry(name: str, variable: Variable) -> str:
    address = variable.source
    if not address.startswith("https://"):
        address = f"https://github.com/pytorch/pytorch/blob/main/{address}"
    shown = address.rsplit("/", 1)[-1] if address.endswith(".mm") else "pull request"
    return (
        f"`{name}`\n: {variable.meaning} Default: {variable.default}. Read: {variable.read} "
        f"([{shown}]({address})).\n"
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _code(text: str) -> str:
    return " ".join(f"`{word}`" if word.startswith("PYTORCH_") else word for word in text.split())
