"""Builds the record kernels where a compiler is at hand; everything else is in pyproject.toml.

The kernels are plain Python and run uncompiled, so a failed compile is not a failed install, unless
TIDELOG_REQUIRE_KERNELS=1 asks for one. One wheel serves every CPython from 3.11 on (abi3).
"""

import os
import sysconfig

from Cython.Build import cythonize
from setuptools import Extension, setup

REQUIRED = os.environ.get("TIDELOG_REQUIRE_KERNELS") == "1"
# A free-threaded CPython has no limited API yet; its wheel serves that one version.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")

extensions = cythonize(
    [
        Extension(
            f"tidelog._kernels.{name}",
            [f"src/tidelog/_kernels/{name}.py"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
            extra_compile_args=["-O3", "-g0"],
            py_limited_api=LIMITED,
        )
        for name in ("records", "batch_walk")
    ],
    build_dir="build",
    compiler_directives={
        "language_level": 3,
        "annotation_typing": False,
        "boundscheck": False,
        "wraparound": False,
        "initializedcheck": False,
        "cdivision": True,
    },
)
for extension in extensions:
    # cythonize() drops the attribute from what it is given, hence set on what it returns.
    extension.optional = not REQUIRED

setup(
    ext_modules=extensions,
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
