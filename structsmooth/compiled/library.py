"""What becomes machine code: entry points do, each with its own copies of the functions that it calls."""

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import NativeLowering


class EntryPointCompiler(Compiler):
    """The compiler of entry points, whose machine code does the same in every process and after every other one.

    numba puts copies of all functions that are not inlined into the machine code of an entry point, under names that
    other machine code has too; and of one name a process uses what it has seen first. In the process that compiles
    that is the function as compiled for itself, in those that load from disk the copy of whichever entry point comes
    first. All do the same work, but optimized in different company, which may differ in rounding.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.library = _EntryPointLibrary(self.state.targetctx.codegen(), "entry_point")
        self.state.library.enable_object_caching()


class _EntryPointLibrary(JITCodeLibrary):
    def _optimize_final_module(self) -> None:
        for function in self.get_defined_functions():
            if function.linkage.name == "linkonce_odr":
                function.linkage = "internal"
        super()._optimize_final_module()


class _OptimizedLibrary(JITCodeLibrary):
    def _finalize_final_module(self) -> None:
        self._finalized = True


class _CalleeLibrary(_OptimizedLibrary):
    def _optimize_final_module(self) -> None:
        pass


class CalleeCompiler(Compiler):
    """The compiler of functions that entry points call: it ends before machine code, which nobody would run.

    Entry points have copies of such functions and optimize them together, after what LLVM does for each one alone.
    """

    library: type[JITCodeLibrary] = _CalleeLibrary

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.library = self.library(self.state.targetctx.codegen(), "callee")
        self.state.flags.no_compile = True

    def define_pipelines(self) -> list[Any]:
        """Those of numba, which does not tell callers of functions without machine code."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_TellCallers, NativeLowering)
        passes.finalize()
        return [passes]


class OptimizedCalleeCompiler(CalleeCompiler):
    """The compiler of functions that are optimized as a whole before entry points have copies of them."""

    library = _OptimizedLibrary


@register_pass(mutates_CFG=False, analysis_only=True)
class _TellCallers(AnalysisPass):
    _name = "tell_callers"

    def __init__(self) -> None:
        super().__init__()  # abstract in numba

    def run_pass(self, state: Any) -> bool:
        """Callers find a function by what Python would call."""

        def refuse(*_: Any) -> None:
            raise TypeError(f"{state.func_id.func_name} has no machine code of its own: only entry points have")

        state.library.finalize()
        state.targetctx.insert_user_function(refuse, state["cr"].fndesc, [state.library])
        state["cr"] = state["cr"]._replace(cfunc=refuse)
        return False
