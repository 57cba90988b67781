"""Which programs run on a GPU to be recorded, with CUDA's own runtime: those of CUDA, where a GPU and nvcc are."""

from __future__ import annotations

import re
from typing import Final

from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import Program
from mptune.adopt.rewriting import blanked
from mptune.adopt.running import Built, build_for_gpu, is_of_hip
from mptune.backends.cuda import CudaBackend, find_nvcc
from mptune.errors import BackendUnavailableError

#: Calls of libraries between kernels: what they do on a GPU, the recorder does not see.
_OF_LIBRARIES: Final = re.compile(r"\b(?:thrust::|cub::Device|cublas|cufft|curandGenerate)\w+")


def built_for_gpu(program: Program) -> Built:
    """Compile a program for the GPU that is here.

    Raises:
        BackendUnavailableError: there is none, or the program has nothing for it.
        ProgramError: it cannot be compiled for that.
    """
    CudaBackend.device_count()
    name = program.sources[0].name
    if program.originals:
        raise BackendUnavailableError(f"{name} has no kernels for a GPU: its loops run on the processor")
    if is_of_hip(file.text for file in program.files):
        raise ProgramError(f"{name} is a program of HIP, which is recorded on the processor")
    for found in filter(None, (_OF_LIBRARIES.search(blanked(file.text)) for file in program.files)):
        raise ProgramError(f"{name} uses {found[0]} of a library, which is recorded on the processor")
    try:
        nvcc = find_nvcc()
    except BackendUnavailableError as error:
        raise ProgramError(str(error)) from None
    return build_for_gpu(nvcc, program.sources, program.files, program.defines, program.includes)
