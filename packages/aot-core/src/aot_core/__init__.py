"""Write a ``torch.compile`` backend on AOTAutograd, see what it decides, and prove that it is right.

Importing this package does not import torch; using it does.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aot_core.__about__ import __version__ as __version__
from aot_core.lazy import lazy_names as lazy_names

if TYPE_CHECKING:
    from aot_core.backend import Backend as Backend
    from aot_core.backend import aot_autograd as aot_autograd
    from aot_core.boxed_calls import boxed as boxed
    from aot_core.boxed_calls import boxed_code as boxed_code
    from aot_core.boxed_calls import boxed_code_generator as boxed_code_generator
    from aot_core.compilation import Compilation as Compilation
    from aot_core.compilation import current_compilation as current_compilation
    from aot_core.compilation import record_decision as record_decision
    from aot_core.errors import AnalysisInstallationError as AnalysisInstallationError
    from aot_core.errors import AotError as AotError
    from aot_core.errors import BackwardAutocastError as BackwardAutocastError
    from aot_core.errors import CompilerError as CompilerError
    from aot_core.errors import GraphCheckError as GraphCheckError
    from aot_core.errors import InconsistentMetadataError as InconsistentMetadataError
    from aot_core.errors import InvalidCompilerResultError as InvalidCompilerResultError
    from aot_core.errors import InvalidOptionValueError as InvalidOptionValueError
    from aot_core.errors import UnanalysedOperationError as UnanalysedOperationError
    from aot_core.errors import UncopyableError as UncopyableError
    from aot_core.errors import UnknownOptionError as UnknownOptionError
    from aot_core.errors import UnsafeGraphError as UnsafeGraphError
    from aot_core.errors import UnsupportedAliasingError as UnsupportedAliasingError
    from aot_core.errors import UnsupportedModeError as UnsupportedModeError
    from aot_core.explaining.call import explain as explain
    from aot_core.explaining.call import explain_with as explain_with
    from aot_core.explaining.explanation import Explanation as Explanation
    from aot_core.explaining.explanation import GraphBreak as GraphBreak
    from aot_core.explaining.explanation import GraphExplanation as GraphExplanation
    from aot_core.explaining.explanation import InputExplanation as InputExplanation
    from aot_core.explaining.explanation import MetadataChange as MetadataChange
    from aot_core.explaining.explanation import NodeExplanation as NodeExplanation
    from aot_core.explaining.explanation import OutputExplanation as OutputExplanation
    from aot_core.explaining.explanation import SavedValue as SavedValue
    from aot_core.explaining.explanation import StageExplanation as StageExplanation
    from aot_core.explaining.explanation import StepAnalysis as StepAnalysis
    from aot_core.explaining.explanation import Tangent as Tangent
    from aot_core.explaining.explanation import Write as Write
    from aot_core.interpreter import RuntimeInterpreter as RuntimeInterpreter
    from aot_core.protocol import PROTOCOL_VERSION as PROTOCOL_VERSION
    from aot_core.protocol import Availability as Availability
    from aot_core.protocol import BackendInfo as BackendInfo
    from aot_core.protocol import BoxedCallable as BoxedCallable
    from aot_core.protocol import Compiler as Compiler
    from aot_core.protocol import CompileReport as CompileReport
    from aot_core.protocol import Decision as Decision
    from aot_core.protocol import Partitioner as Partitioner
    from aot_core.report import recent_reports as recent_reports
    from aot_core.report import record_reports as record_reports
    from aot_core.safety import (
        is_aot_autograd_safe_to_run as is_aot_autograd_safe_to_run,
    )
    from aot_core.settings import Settings as Settings
    from aot_core.settings import parse_settings as parse_settings
    from aot_core.source import source_line as source_line
    from aot_core.torch_interfaces import missing_interfaces as missing_interfaces
    from aot_core.torch_interfaces import torch_availability as torch_availability

_HOMES = {
    "backend": ("Backend", "aot_autograd"),
    "boxed_calls": ("boxed", "boxed_code", "boxed_code_generator"),
    "compilation": ("Compilation", "current_compilation", "record_decision"),
    "errors": (
        "AnalysisInstallationError",
        "AotError",
        "BackwardAutocastError",
        "CompilerError",
        "GraphCheckError",
        "InconsistentMetadataError",
        "InvalidCompilerResultError",
        "InvalidOptionValueError",
        "UncopyableError",
        "UnanalysedOperationError",
        "UnknownOptionError",
        "UnsafeGraphError",
        "UnsupportedAliasingError",
        "UnsupportedModeError",
    ),
    "explaining.call": ("explain", "explain_with"),
    "explaining.explanation": (
        "Explanation",
        "GraphBreak",
        "GraphExplanation",
        "InputExplanation",
        "MetadataChange",
        "NodeExplanation",
        "OutputExplanation",
        "SavedValue",
        "StageExplanation",
        "StepAnalysis",
        "Tangent",
        "Write",
    ),
    "interpreter": ("RuntimeInterpreter",),
    "protocol": (
        "PROTOCOL_VERSION",
        "Availability",
        "BackendInfo",
        "BoxedCallable",
        "CompileReport",
        "Compiler",
        "Decision",
        "Partitioner",
    ),
    "report": ("recent_reports", "record_reports"),
    "safety": ("is_aot_autograd_safe_to_run",),
    "settings": ("Settings", "parse_settings"),
    "source": ("source_line",),
    "torch_interfaces": ("missing_interfaces", "torch_availability"),
}
__all__ = sorted(["__version__", "lazy_names", *itertools.chain(*_HOMES.values())])

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
