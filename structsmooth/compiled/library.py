"""How machine code is linked: each entry point runs its own copies of the functions that it calls."""

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class Pipeline(Compiler):
    """The compiler of numba, whose machine code does the same in every process and after every other entry point.

    numba puts copies of all functions that are not inlined into the machine code of an entry point, under names that
    other machine code has too; and of one name a process uses what it has seen first. In the process that compiles
    that is the function as compiled for itself, in those that load from disk the copy of whichever entry point comes
    first. All do the same work, but optimized in different company, which may differ in rounding.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.library = _Library(self.state.targetctx.codegen(), "entry_point")
        self.state.library.enable_object_caching()


class _Library(JITCodeLibrary):
    def _optimize_final_module(self) -> None:
        for function in self.get_defined_functions():
            if function.linkage.name == "linkonce_odr":
                function.linkage = "internal"
        super()._optimize_final_module()
